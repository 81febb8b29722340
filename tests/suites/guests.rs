//! Whole-system tests: real guests, stock kernels, unmodified drivers.
//!
//! One guest serves many zoo modules, so that the tests of all three kernels fit in a few minutes.

#[path = "guests/cut_short.rs"]
mod cut_short;
#[path = "guests/recorded.rs"]
mod recorded;

use guardrail_tests::{Checked, Planted, check, ensure, findings, guardrail, keeps_the_rules};
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const KERNELS: [&str; 3] = ["6.1", "6.12", "7.2"];
/// DMA bugs that are also tested with an IOMMU and with bounce buffers.
const DMA_SAMPLE: [&str; 9] = [
    "dma-direction",
    "dma-leak-sg",
    "dma-mismatch-size",
    "dma-race-chained",
    "dma-race-receive",
    "dma-repeated-unmap",
    "dma-sync-offset",
    "dma-uninit",
    "dma-uninit-struct",
];
const DRIVERS: [&str; 5] = ["e1000", "pcnet32", "8139cp", "e100", "sym53c8xx"];

/// A fault of a stock driver, which the kernel reports on all kernels: it frees coherent memory with interrupts off.
const KNOWN: (&str, &str) = ("sym53c8xx", "___free_dma_mem_cluster");

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    if !arguments.list {
        // The longest one begins first.
        trials.push(Trial::test("a race is made to happen, and its fault follows", race_is_confirmed));
        let bugs = Bug::all();
        // With `--skip zoo`, the zoo's guests need not boot.
        if !arguments.skip.iter().any(|skip| skip == "zoo") {
            zoo_trials(&bugs, arguments.include_ignored || arguments.ignored, &mut trials);
        }
        for (number, kernel) in KERNELS.into_iter().enumerate() {
            for (of, driver) in DRIVERS.into_iter().enumerate() {
                let name = format!("{driver} on {kernel} has no finding but what was judged by hand");
                // Each runs on two kernels, and with `--ignored` on the third.
                let left_out = (of + number) % KERNELS.len() == 2;
                trials.push(Trial::test(name, move || silent(driver, kernel)).with_ignored_flag(left_out));
            }
        }
        trials.push(Trial::test("recorded equals live", recorded::equals_live));
        // Bounce buffers are outside the range of the edu device's 28 address lines: it receives no memory.
        for (option, edu) in [(&["--iommu"][..], true), (&["--append", "swiotlb=force"], false)] {
            let sampled = |bug: &&Bug| DMA_SAMPLE.contains(&bug.folder.as_str()) && (edu || !bug.edu);
            let sample: Vec<Bug> = bugs.iter().filter(sampled).cloned().collect();
            let name = format!("DMA bugs with {} are named, and twins silent", option.join(" "));
            trials.push(Trial::test(name, move || dma_otherwise(&sample, option)));
        }
        trials.push(Trial::test("what the user sets arrives, and what nothing reads is refused", settings));
        trials.push(Trial::test("a panic in the driver is a result", cut_short::by_a_panic));
        trials.push(Trial::test("the kernel looks for leaks", own_detectors));
        trials.push(Trial::test("a run that is interrupted has a report", cut_short::by_the_user));
        trials.push(Trial::test("a full disk ends the recording alone", cut_short::by_a_full_disk));
    }
    guardrail_tests::run(arguments, trials)
}

/// The description of a folder of the zoo.
#[derive(Clone)]
struct Bug {
    folder: String,
    kind: String,
    /// The function and line of the bug.
    place: (String, u64),
    /// The function and line of the other side of a race.
    other: Option<(String, u64)>,
    /// The beginning of its triage, where that matters.
    triage: Option<String>,
    /// The beginning of the triage of further races that it causes.
    also: Option<String>,
    /// True where the guest's kernel itself reports it.
    by_kernel: bool,
    /// True where it always ends the kernel.
    dies: bool,
    /// The checker with its option; `None` where it needs none.
    tool: Option<String>,
    /// True where it drives QEMU's `edu` device.
    edu: bool,
    oopses: bool,
    /// True where the guest's kernel warns of it.
    warns: bool,
    /// The functions that the compiler has inlined at the bug, innermost first.
    inlined: Vec<Value>,
}

impl Bug {
    fn all() -> Vec<Bug> {
        // Where a client is named, `guardrail profile` finds the bug, and no checker.
        let bugs: Vec<Bug> =
            Planted::all().iter().filter(|bug| bug.expect.get("client").is_none()).map(Bug::of).collect();
        assert!(bugs.len() >= 24, "the zoo holds {} bugs", bugs.len());
        bugs
    }

    fn of(planted: &Planted) -> Bug {
        let place = |function: &str, marker: &str| Some((planted.word(function)?, planted.line(marker)?));
        Bug {
            folder: planted.name.clone(),
            kind: planted.word("kind").expect("kind"),
            place: place("function", "line_marker").expect("function and line_marker"),
            other: place("other_function", "other_marker"),
            triage: planted.word("triage"),
            also: planted.word("also"),
            tool: planted.word("tool"),
            edu: planted.expect["device"] == "edu",
            by_kernel: planted.expect["checker"] == "kernel",
            dies: planted.expect["aftermath"] == "oops",
            oopses: planted.word("aftermath").is_some_and(|after| after.ends_with("oops")),
            warns: planted.expect["aftermath"] == "warning",
            inlined: planted.expect["inlined"].as_array().cloned().unwrap_or_default(),
        }
    }

    fn module(&self) -> String {
        self.folder.replace('-', "_")
    }

    /// True where a finding is the planted bug; a report may have the sides of a race in either order.
    fn is_named_by(&self, finding: &Value) -> bool {
        let at = |frame: &Value| {
            let function = frame["function"].as_str().unwrap_or("").to_owned();
            (function, frame["location"]["line"].as_u64().unwrap_or(0))
        };
        let place = at(finding);
        let places = match &self.other {
            None => place == self.place,
            Some(other) => {
                let second = at(&finding["other"]["stack"][0]);
                place == self.place && second == *other || place == *other && second == self.place
            }
        };
        let triage = finding["triage"].as_str().unwrap_or("");
        let inlined = finding["stack"][0]["inlined"].as_array().map(Vec::as_slice).unwrap_or_default();
        places
            && (self.inlined.is_empty() || inlined.iter().map(|one| &one["function"]).eq(&self.inlined))
            && finding["kind"] == self.kind.as_str()
            && triage.starts_with(self.triage.as_deref().unwrap_or(""))
    }
}

/// The number of lines of a run's progress that a failure prints.
const LAST_WORDS: usize = 8;
/// The bug whose stacks are looked at as far as they reach.
const OF_STACKS: &str = "uaf-timer";
/// The number of bugs that share a guest, with their twins.
const TOGETHER: usize = 50;
/// The number of their guests that run at a time: the modules of the zoo wait for most of the time.
const WAITING: usize = 5;

/// The bugs that run on a kernel: all on the first, half on each other, and an eighth of those with own guests.
fn sampled<'a>(bugs: &'a [Bug], kernel: &str, whole: bool) -> Vec<&'a Bug> {
    let number = KERNELS.iter().position(|one| *one == kernel).unwrap_or(0);
    let is_in = |index: usize, bug: &Bug| {
        let every = if bug.oopses { 8 } else { 2 };
        whole || number == 0 || index % every == number % every || bug.folder == OF_STACKS
    };
    bugs.iter().enumerate().filter(|(index, bug)| is_in(*index, bug)).map(|(_, bug)| bug).collect()
}

/// A guest runs many modules that it survives; each other module has a guest of its own.
fn zoo_trials(bugs: &[Bug], whole: bool, trials: &mut Vec<Trial>) {
    let of = |kernel: &str| -> (Vec<&Bug>, Vec<&Bug>) {
        sampled(bugs, kernel, whole).into_iter().partition(|bug| bug.oopses)
    };
    // A panic that is a result (see there) has the bug for which the kernel stops by itself.
    let guests = KERNELS.iter().flat_map(|kernel| of(kernel).0.into_iter().map(move |bug| (kernel, bug)));
    for (kernel, bug) in guests.filter(|(_, bug)| !bug.by_kernel) {
        let expected = Bug::clone(bug);
        trials.push(Trial::test(format!("zoo/{} on {kernel}", bug.folder), move || {
            let result = check(&[&format!("zoo/{}", expected.folder), "--kernel", kernel, "--tool", "all"]);
            named(&result, &expected)?;
            let oops =
                |finding: &Value| finding["kind"] == "kernel-oops" && finding["module"] == expected.module();
            let died = findings(result.report()?).any(oops);
            ensure(died || !expected.dies, || "the oops of the driver is no finding".to_owned())
        }));
    }
    // Modules that need the device are together: the first module decides which device the guest has.
    let all = |kernel: &str| -> Vec<(&Bug, bool)> {
        let (alone, together) = of(kernel);
        let together = together.into_iter().map(|bug| (bug, true));
        let mut all: Vec<_> = together.chain(alone.into_iter().map(|bug| (bug, false))).collect();
        all.sort_by_key(|(bug, _)| !bug.edu);
        all
    };
    let all = KERNELS.map(|kernel| (kernel, all(kernel)));
    let chunks = |kernel: &'static str, bugs| {
        (<[_]>::chunks(bugs, TOGETHER)).enumerate().map(move |(n, bugs)| (kernel, n, bugs))
    };
    let guests: Vec<_> = all.iter().flat_map(|(kernel, bugs)| chunks(kernel, bugs)).collect();
    let runs = guardrail_tests::at_once(&guests, WAITING, |(kernel, _, bugs)| Shared::of(kernel, bugs));
    for ((kernel, number, bugs), run) in guests.into_iter().zip(runs) {
        guest_trials(kernel, number, bugs, run, trials);
    }
}

/// The result of one guest with many modules.
struct Shared {
    result: Arc<Checked>,
    /// The results of checkers with an option on the same trace, by that option.
    others: BTreeMap<String, Arc<Checked>>,
    trace: String,
    folder: tempfile::TempDir,
}

impl Shared {
    /// Runs the guest, with all twins and those bugs that it survives.
    fn of(kernel: &str, bugs: &[(&Bug, bool)]) -> Shared {
        let twins = bugs.iter().map(|(bug, _)| format!("zoo/{}_ok", bug.folder));
        // What the kernel warns of may have left harm, such as a bad page, for what runs next.
        let mut survived: Vec<&Bug> =
            bugs.iter().filter(|(_, survived)| *survived).map(|(bug, _)| *bug).collect();
        survived.sort_by_key(|bug| bug.warns);
        let drivers: Vec<String> =
            twins.chain(survived.iter().map(|bug| format!("zoo/{}", bug.folder))).collect();
        let names: Vec<&str> = drivers.iter().map(String::as_str).collect();
        let folder = tempfile::tempdir().expect("a temporary folder");
        let trace = folder.path().join("zoo.trace").display().to_string();
        let options = ["--kernel", kernel, "--record", &trace, "--tool", "all", "--timeout", "600"];
        let result = Arc::new(check(&[&names[..], &options].concat()));
        let tools: BTreeSet<&String> = bugs.iter().filter_map(|(bug, _)| bug.tool.as_ref()).collect();
        let again = |tool: &String| guardrail(&["analyze", &trace, "--tool", tool, "--format", "json"]);
        let others = tools.into_iter().map(|tool| (tool.clone(), Arc::new(again(tool)))).collect();
        Shared { result, others, trace, folder }
    }
}

/// The tests whose results are in one guest's run.
fn guest_trials(
    kernel: &'static str,
    number: usize,
    bugs: &[(&Bug, bool)],
    run: Shared,
    trials: &mut Vec<Trial>,
) {
    for &(bug, survived) in bugs {
        let result = bug.tool.as_ref().and_then(|tool| run.others.get(tool)).unwrap_or(&run.result);
        let (expected, of_bug, result) = (bug.clone(), Arc::clone(result), Arc::clone(result));
        if survived {
            trials.push(Trial::test(format!("zoo/{} on {kernel}", bug.folder), move || {
                named(&of_bug, &expected).or_else(|missed| again(kernel, &expected, missed))
            }));
        }
        let module = format!("{}_ok", bug.module());
        trials.push(Trial::test(format!("zoo/{}_ok on {kernel}", bug.folder), move || {
            let report = result.report()?;
            let loud: Vec<&Value> =
                findings(report).filter(|finding| finding["module"] == module.as_str()).collect();
            if report["run"]["outcome"] != "completed" {
                return Err(format!("the run did not complete: {}", report["run"]["outcome"]).into());
            }
            ensure(loud.is_empty(), || format!("the twin is not silent: {loud:#?}"))
        }));
    }
    if bugs.iter().any(|(bug, survived)| bug.folder == OF_STACKS && *survived) {
        let result = Arc::clone(&run.result);
        trials.push(Trial::test(format!("stacks on {kernel} reach the kernel's entry"), move || {
            whole_stacks(result.report()?)
        }));
    }
    let Shared { trace, folder, .. } = run;
    trials.push(Trial::test(
        format!("zoo trace {number} on {kernel} keeps the rules of traces"),
        move || {
            let _folder = folder;
            keeps_the_rules(&trace)
        },
    ));
}

/// A finding's stacks lead to where the kernel was entered or began a thread, and one leads over an
/// interrupt's stack.
fn whole_stacks(report: &Value) -> Result<(), Failed> {
    let names = |stack: &Value| -> Vec<String> {
        let frames = stack.as_array().map(Vec::as_slice).unwrap_or_default();
        frames.iter().map(|frame| frame["function"].as_str().unwrap_or("").to_owned()).collect()
    };
    let finding = findings(report).find(|finding| finding["module"] == "uaf_timer").ok_or("no finding")?;
    let allocated = &finding["object"]["allocated"]["stack"];
    for (stack, within, last) in [
        (&finding["stack"], ["process_one_work", "worker_thread", "kthread"].as_slice(), "ret_from_fork"),
        (allocated, &["do_one_initcall", "do_init_module"], "entry_SYSCALL_64"),
    ] {
        let names = names(stack);
        let mut rest = names.iter();
        let has = within.iter().all(|wanted| rest.any(|name| name == wanted));
        let ends = names.last().is_some_and(|name| name.starts_with(last));
        ensure(has && ends, || format!("the stack does not lead to {last}: {names:#?}"))?;
    }
    let freed = &finding["object"]["freed"]["stack"];
    let over = |frame: &Value| frame["switched"] == true;
    ensure(freed.as_array().is_some_and(|stack| stack.iter().any(over)), || {
        format!("a timer's function ran on no interrupt's stack: {:#?}", names(freed))
    })
}

/// A bug that one guest did not show may depend on the guest's timing, as races do. It runs once more in a
/// guest of its own, and the first result is reported nevertheless.
fn again(kernel: &str, bug: &Bug, missed: Failed) -> Result<(), Failed> {
    let why = missed.message().unwrap_or("").to_owned();
    eprintln!("flaky: zoo/{} on {kernel}: {why}", bug.folder);
    let tool = bug.tool.as_deref().unwrap_or("all");
    named(&check(&[&format!("zoo/{}", bug.folder), "--kernel", kernel, "--tool", tool]), bug)
}

/// The bug is reported with its kind, function and line, and its module has no other finding. What the kernel
/// says about a bug that a checker finds is its aftermath.
fn named(result: &Checked, bug: &Bug) -> Result<(), Failed> {
    let report = result.report()?;
    let module = bug.module();
    let of_module: Vec<&Value> = findings(report)
        .filter(|finding| finding["module"] == module.as_str())
        .filter(|finding| bug.by_kernel || finding["checker"] != "kernel")
        .collect();
    let (right, mut wrong): (Vec<&Value>, Vec<&Value>) =
        of_module.iter().partition(|finding| bug.is_named_by(finding));
    if let Some(also) = &bug.also {
        wrong.retain(|finding| !finding["triage"].as_str().is_some_and(|triage| triage.starts_with(also)));
    }
    if right.is_empty() {
        let (kind, (function, line)) = (&bug.kind, &bug.place);
        let progress: Vec<&str> = result.stderr.lines().rev().take(LAST_WORDS).collect();
        return Err(format!(
            "expected {kind} in {function} at line {line}, found {of_module:#?}; the guest's last words, \
             newest first: {progress:#?}"
        )
        .into());
    }
    // A race is reported for each pair of instructions, which may be several in one pair of lines.
    if !wrong.is_empty() || right.len() > 1 && bug.other.is_none() {
        return Err(format!("more than the planted bug was reported: {of_module:#?}").into());
    }
    Ok(())
}

/// A stock driver under its workload causes no finding besides races, of which those that are called harmful were
/// judged so by hand. Of a cause that was judged harmful, at least one race is called so. No event is lost.
fn silent(driver: &str, kernel: &str) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let trace = folder.path().join("run.trace").display().to_string();
    // 8139cp can unmask what it receives while NAPI is scheduled. QEMU then delivers 10,000 interrupts before the
    // driver goes on, which takes long where others use the processors.
    let result = check(&[driver, "--kernel", kernel, "--record", &trace, "--timeout", "1500"]);
    let report = result.report()?;
    let run = &report["run"];
    if run["outcome"] != "completed" || run["lost_events"] != 0 || run["blocks"].as_u64() < Some(1000) {
        return Err(format!("the run is not as it should be: {run:#}\n{}", result.stderr).into());
    }
    let gate = &run["gate"];
    if gate["kind"] != "vmm"
        || gate["held"].as_u64() < Some(10)
        || gate["ungated"] != 0
        || gate["dropped"] != 0
    {
        return Err(format!("accesses were not held as they should be: {gate:#}").into());
    }
    keeps_the_rules(&trace)?;
    let known = |finding: &&Value| {
        finding["kind"] == "kernel-warning"
            && (driver, finding["function"].as_str()) == (KNOWN.0, Some(KNOWN.1))
    };
    let rows = guardrail_corpus::rows()?;
    let judged = |finding: &&Value| {
        let rows = rows.iter().filter(|row| row.is_about(driver, kernel));
        finding["severity"] != "error" && finding["kind"] == "data-race"
            || guardrail_corpus::race(finding).is_some_and(|race| {
                rows.filter(|row| row.names(&race)).any(|row| row.label == guardrail_corpus::Label::Harmful)
            })
    };
    let races: Vec<_> = findings(report).filter_map(guardrail_corpus::race).collect();
    let harmful = rows.iter().filter(|row| row.label == guardrail_corpus::Label::Harmful);
    for row in harmful.filter(|row| row.is_about(driver, kernel)) {
        let mut of_row = races.iter().filter(|race| row.names(race)).peekable();
        let shown = of_row.peek().is_some();
        ensure(!shown || of_row.any(|race| race.triage.starts_with("harmful")), || {
            format!("no race of {} against {} is called harmful: {races:#?}", row.one[0], row.other[0])
        })?;
    }
    let status = i32::from(findings(report).any(|finding| finding["severity"] != "note"));
    match findings(report).find(|finding| !known(finding) && !judged(finding)) {
        None if result.status == status => Ok(()),
        None => Err(format!("exit status {}", result.status).into()),
        // The message is one line with the essence first, because a log may be cut.
        Some(finding) => Err(format!(
            "a finding on a stock driver: {} in {}: {} {finding}",
            finding["kind"], finding["function"], finding["message"]
        )
        .into()),
    }
}

/// Where bus addresses are not physical ones, DMA bugs are reported nevertheless. The first module decides
/// which device the guest has.
fn dma_otherwise(bugs: &[Bug], option: &[&str]) -> Result<(), Failed> {
    let mut bugs: Vec<&Bug> = bugs.iter().collect();
    bugs.sort_by_key(|bug| !bug.edu);
    let drivers: Vec<String> = bugs
        .iter()
        .flat_map(|bug| [format!("zoo/{}", bug.folder), format!("zoo/{}_ok", bug.folder)])
        .collect();
    let names: Vec<&str> = drivers.iter().map(String::as_str).collect();
    let result = check(&[&names[..], &["--kernel", "6.12"], option].concat());
    let report = result.report()?;
    if report["run"]["outcome"] != "completed" {
        return Err(
            format!("the run did not complete: {}\n{}", report["run"]["outcome"], result.stderr).into()
        );
    }
    bugs.iter().try_for_each(|bug| named(&result, bug))?;
    match findings(report).find(|finding| finding["module"].as_str().is_some_and(|m| m.ends_with("_ok"))) {
        None => Ok(()),
        Some(finding) => Err(format!("a twin is not silent: {finding:#}").into()),
    }
}

/// A real race happens when one side is held for the other, and the use after free follows. The accesses of
/// the twin do not meet, and nothing follows.
fn race_is_confirmed() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let out = folder.path().join("run").display().to_string();
    let tools = "drcheck:klockset,dmcheck,dmacheck,lockcheck,protocheck";
    let found = check(&["zoo/race-free", "zoo/race-free_ok", "--tool", tools, "--out", &out]);
    found.report()?;
    let always = ["confirm", "--out", &out, "--format", "json", "--follow", "5", "--repeat", "2", "--runs"];
    let confirmed = |runs: &str| guardrail(&[&always[..], &[runs]].concat());
    let mut result = confirmed("1");
    let stored = || -> Result<Value, Failed> {
        Ok(serde_json::from_str(&std::fs::read_to_string(folder.path().join("run/report.json"))?)?)
    };
    let judged = |report: &Value| -> Result<(), Failed> {
        let of = |module: &str| -> Vec<&Value> {
            findings(report).filter(|one| one["module"] == module).map(|one| &one["confirmation"]).collect()
        };
        let faulty = |one: &&Value| {
            let then = &one["consequence"];
            let fault = &then["finding"];
            one["outcome"] == "confirmed"
                && then["outcome"] == "fault"
                && fault["kind"] == "use-after-free"
                && fault["function"] == "race_free_expire"
                && one["repeated"]["forced"] != 0
        };
        let (races, twins) = (of("race_free"), of("race_free_ok"));
        ensure(races.iter().any(faulty), || format!("the race: {races:#?}"))?;
        ensure(!twins.is_empty() && twins.iter().all(|one| one["outcome"] != "confirmed"), || {
            format!("the twin: {twins:#?}")
        })
    };
    if judged(&stored()?).is_err() {
        // The result depends on chance.
        result = confirmed("3");
    }
    judged(&stored()?).map_err(|why| format!("{}\n{}", why.message().unwrap_or(""), result.stderr))?;
    ensure(result.status == 1, || format!("exit status {}", result.status))
}

/// The guest has its kernel look for leaks, here one that only pretends.
fn own_detectors() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let script = folder.path().join("mine.sh");
    let text = "mount -t tmpfs pretended /sys/kernel/debug
        leaks=/sys/kernel/debug/kmemleak
        mkfifo $leaks
        (exec 3<>$leaks && read -r first <&3 && read -r second <&3 && exec 3>&-
        echo \"<6>kmemleak: 1 new suspected memory leaks ($first, $second)\" >/dev/kmsg
        echo 'unreferenced object 0x1 (size 8):' >$leaks) &\n";
    std::fs::write(&script, text)?;
    let result = check(&["loop", "--workload", &script.display().to_string()]);
    let mut leaks = findings(result.report()?).filter(|finding| finding["kind"] == "kmemleak");
    let leak = leaks.next().ok_or_else(|| format!("no leak\n{}", result.stderr))?;
    let noted = leak["notes"]
        .as_array()
        .is_some_and(|notes| notes.iter().any(|note| note == "unreferenced object 0x1 (size 8):"));
    let message = "kmemleak: 1 new suspected memory leaks (scan, scan)";
    ensure(leak["message"] == message && noted, || format!("{leak:#}\n{}", result.stderr))
}

/// A variable and a parameter reach the guest. A name that nothing reads is refused without a guest.
fn settings() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let script = folder.path().join("mine.sh");
    let text = "step parameter test \"$(cat /sys/module/loop/parameters/max_part)\" = \"$WANTED\"\n";
    std::fs::write(&script, text)?;
    let script = script.display().to_string();
    let run = |more: &[&str]| check(&[&["loop", "--workload", &script], more].concat());
    for (more, sentence) in [
        (
            ["--set", "WANTD=7"],
            format!("the workload '{script}' reads no variable 'WANTD'; the nearest is 'WANTED'"),
        ),
        (
            ["--param", "max_prt=7"],
            "the module 'loop' has no parameter 'max_prt'; the nearest are 'max_part', 'max_loop'".into(),
        ),
        (["--param", "brd.rd_nr=7"], "there is no module of the run named 'brd'".into()),
    ] {
        let refused = run(&more);
        let last = refused.stderr.lines().last().unwrap_or_default();
        ensure(refused.status == 2 && last == format!("error: {sentence}"), || format!("{more:?}: {last}"))?;
    }
    let two = check(&["loop", "dummy", "--param", "max_part=7"]);
    let sentence = "does not say for which driver; write MODULE.NAME=VALUE with one of loop, dummy";
    ensure(two.status == 2 && two.stderr.contains(sentence), || two.stderr.clone())?;
    let trace = folder.path().join("run.trace").display().to_string();
    let set = ["--set", "WANTED=7", "--param", "loop.max_part=7"];
    let result = run(&[&set[..], &["--min-coverage", "90", "--record", &trace]].concat());
    little_is_not_clean(&result, &trace)
}

/// A run that completed and saw little of its driver is not clean, and neither is a trace that was cut.
fn little_is_not_clean(result: &Checked, trace: &str) -> Result<(), Failed> {
    let report = result.report()?;
    let ran = &report["run"]["coverage"][0];
    let (some, all) = (ran["functions_run"].as_u64(), ran["functions"].as_u64());
    let right = ran["module"] == "loop" && some > Some(1) && some < all && ran["blocks"].as_u64() > some;
    let outcome = |report: &Value| report["run"]["outcome"].clone();
    ensure(right && outcome(report) == "not-exercised" && result.status == 6, || {
        format!("{} {report:#}\n{}", result.status, result.stderr)
    })?;
    let again = guardrail(&["analyze", trace, "--format", "json"]);
    ensure(again.report()?["run"]["coverage"] == report["run"]["coverage"] && again.status == 6, || {
        format!("{} {}", again.status, again.stderr)
    })?;
    let bytes = std::fs::read(trace)?;
    std::fs::write(trace, &bytes[..bytes.len() * 2 / 3])?;
    let cut = guardrail(&["analyze", trace, "--format", "json"]);
    ensure(outcome(cut.report()?) == "truncated" && cut.status == 6, || {
        format!("{} {}", cut.status, cut.stderr)
    })?;
    // A driver of another bus than PCI that finds no device.
    let unbound = check(&["cdc_acm"]);
    ensure(outcome(unbound.report()?) == "no-device-bound" && unbound.status == 6, || {
        format!("{} {}", unbound.status, unbound.stderr)
    })
}
