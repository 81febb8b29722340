//! The test suites that Linux has for its sanitizers and for lockdep, as exams for the checkers: their faults, in
//! modules for a stock kernel that has neither.
//!
//! The suites come from the distribution's source package, and `tests/exams` turns them into modules.
//! `tests/exams/cases.txt` says of each case which faults it makes, and which of them are found today.

use guardrail_tests::{Checked, check, ensure, findings, root};
use guardrail_vm::packages::Packages;
use guardrail_vm::{Cache, kbuild, kernels};
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

const KERNEL: &str = "6.1";
const TABLE: &str = "tests/exams/cases.txt";
/// The guest of an ordinary run; the others are for cases that hurt the kernel.
const SAMPLE: &str = "sample";
/// The suite whose cases run functions in threads of their own. Its faults are pairs of functions.
const PAIRS: &str = "kcsan";
/// The longest that a guest may take; a case may leave it hanging.
const SECONDS: &str = "120";
/// The workload of a module, before its cases. A case may end its process with an oops.
const START: &str = "echo 0 >/proc/sys/kernel/panic_on_oops
node=/dev/exam
[ -c $node ] || mknod $node c 10 \"$(cut -d: -f2 /sys/class/misc/exam/dev)\"
one() { echo \"exam: $1\" >/dev/kmsg; (echo -n \"$1\" >$node) || true; }
";

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = vec![Trial::test("the page of results has every case", page)];
    match cases() {
        Ok(cases) => {
            let guests: BTreeSet<String> = cases.iter().map(|case| case.guest.clone()).collect();
            for guest in guests {
                let inside: Vec<Case> = cases.iter().filter(|case| case.guest == guest).cloned().collect();
                let ordinary = guest == SAMPLE;
                let name = format!("cases of the guest '{guest}' are found or silent as the table says");
                trials.push(Trial::test(name, move || as_expected(&inside)).with_ignored_flag(!ordinary));
            }
        }
        Err(why) => trials.push(Trial::test("the table of cases is read", move || Err(why.clone().into()))),
    }
    guardrail_tests::run(arguments, trials)
}

/// A fault that a case makes: its kind, and in how many lines.
type Faults = BTreeMap<String, usize>;

/// A row of the table.
#[derive(Clone)]
struct Case {
    /// The module, without `exam_`.
    suite: String,
    name: String,
    /// Functions of the case that do not run below it; for a race, those that race.
    also: Vec<String>,
    guest: String,
    /// What is wrong with it; empty where it is correct.
    faults: Faults,
    /// What is found today.
    found: Faults,
    /// Where the allocator or the schedule decides whether that is found, or nothing.
    sometimes: bool,
    /// Why something is not found, or why the case does not apply.
    why: String,
}

impl Case {
    fn read(line: &str) -> Option<Case> {
        let mut parts = line.split('|').map(str::trim);
        let (suite, names) = parts.next()?.split_once(' ')?;
        let mut names = names.split_whitespace().map(str::to_owned);
        let name = names.next()?;
        let guest = parts.next()?.to_owned();
        let (wrong, shown) = (parts.next()?, parts.next()?);
        let sometimes = shown.starts_with("~ ");
        let (faults, found) = (faults(wrong)?, faults(shown.trim_start_matches("~ "))?);
        let why = parts.next().unwrap_or_default().to_owned();
        Some(Case {
            suite: suite.to_owned(),
            name,
            also: names.collect(),
            guest,
            faults,
            found,
            sometimes,
            why,
        })
    }

    /// The function that the case runs; a suite may list it under several names.
    fn function(&self) -> &str {
        self.name.split('-').next().unwrap_or(&self.name)
    }

    fn module(&self) -> String {
        format!("exam_{}", self.suite)
    }

    /// The word for the result in the page.
    fn result(&self) -> &'static str {
        match (self.faults.is_empty(), self.found == self.faults) {
            _ if self.why.starts_with("n/a") => "not applicable",
            (true, true) => "silent",
            (true, false) => "false alarm",
            (false, true) if self.sometimes => "sometimes",
            (false, true) => "found",
            (false, false) if self.sometimes || self.found.is_empty() => "missed",
            (false, false) => "in part",
        }
    }
}

/// `KIND*LINES, …`, or `-` for none.
fn faults(text: &str) -> Option<Faults> {
    if text == "-" {
        return Some(Faults::new());
    }
    text.split(", ")
        .map(|one| match one.split_once('*') {
            Some((kind, lines)) => Some((kind.to_owned(), lines.parse().ok()?)),
            None => Some((one.to_owned(), 1)),
        })
        .collect()
}

fn show(faults: &Faults) -> String {
    let one = |(kind, lines): (&String, &usize)| match lines {
        1 => kind.clone(),
        _ => format!("{kind}*{lines}"),
    };
    if faults.is_empty() { "-".to_owned() } else { faults.iter().map(one).collect::<Vec<_>>().join(", ") }
}

fn cases() -> Result<Vec<Case>, String> {
    let text = fs::read_to_string(root().join(TABLE)).map_err(|error| format!("{TABLE}: {error}"))?;
    let rows = text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    rows.map(|(at, line)| {
        Case::read(line)
            .ok_or(format!("{TABLE}, line {}: a row is SUITE CASE | GUEST | FAULTS | FOUND | WHY", at + 1))
    })
    .collect()
}

/// The modules, and the source that they are built from.
struct Built {
    folder: tempfile::TempDir,
    source: PathBuf,
}

/// The modules, built once for a run of this suite.
fn built() -> Result<&'static Built, String> {
    static BUILT: OnceLock<Result<Built, String>> = OnceLock::new();
    let build = || {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let packages = Packages::new(&Cache::open().map_err(|error| error.to_string())?);
        let kernel = kernels::find(&packages, KERNEL).map_err(|error| error.to_string())?;
        let source = kernels::source(&packages, &kernel).map_err(|error| {
            format!("the exams need the source of Linux {KERNEL}, package linux-source-{KERNEL}: {error}")
        })?;
        let rest = [folder.path().as_os_str(), source.as_os_str()];
        kbuild::run(&packages, &kernel, &root().join("tests/exams/build"), &[], &rest)
            .map_err(|error| error.to_string())?;
        Ok(Built { folder, source })
    };
    BUILT.get_or_init(build).as_ref().map_err(Clone::clone)
}

/// The lines, from 1, of which KASAN's suite says that they are at fault.
fn marked() -> Result<BTreeSet<u64>, Failed> {
    let text = fs::read_to_string(built()?.source.join("mm/kasan/kasan_test.c"))?;
    let lines = (1..).zip(text.lines()).filter(|(_, line)| line.contains("KUNIT_EXPECT_KASAN_FAIL(test"));
    Ok(lines.map(|(number, _)| number).collect())
}

/// The loads of modules that run the cases: a module, and its cases. Races are between all that a load has run, so
/// that each of their cases has a load of its own.
fn loads(cases: &[Case]) -> Vec<(String, Vec<&Case>)> {
    let mut loads: Vec<(String, Vec<&Case>)> = Vec::new();
    for case in cases {
        match loads.iter_mut().find(|(module, _)| case.suite != PAIRS && *module == case.module()) {
            Some((_, inside)) => inside.push(case),
            None => loads.push((case.module(), vec![case])),
        }
    }
    loads
}

/// Runs cases of several suites in one guest. The workload of a load lies beside its module.
fn run(cases: &[Case]) -> Result<Checked, Failed> {
    let (built, folder) = (built()?.folder.path(), tempfile::tempdir()?);
    let mut drivers = Vec::new();
    for (number, (module, inside)) in loads(cases).into_iter().enumerate() {
        let mut script = START.to_owned();
        for case in inside {
            writeln!(script, "one {}", case.name)?;
        }
        let own = folder.path().join(number.to_string());
        fs::create_dir(&own)?;
        let path = own.join(format!("{module}.ko"));
        fs::copy(built.join(format!("{module}.ko")), &path)?;
        fs::write(own.join(format!("{module}.workload.sh")), script)?;
        drivers.push(path.display().to_string());
    }
    let drivers: Vec<&str> = drivers.iter().map(String::as_str).collect();
    let tools = if cases.iter().any(|case| case.suite == PAIRS) { "all" } else { "quiet" };
    let options = [
        "--kernel",
        KERNEL,
        "--gate",
        "off",
        "--append",
        "slub_debug=Z",
        "--timeout",
        SECONDS,
        "--tool",
        tools,
    ];
    Ok(check(&[&drivers[..], &options].concat()))
}

/// Whether a function is on the stack, or its part `.cold`.
fn runs(stack: &Value, function: &str) -> bool {
    let named = |name: &Value| name.as_str().and_then(|name| name.split('.').next()) == Some(function);
    stack.as_array().into_iter().flatten().any(|frame| {
        let inlined = frame["inlined"].as_array().into_iter().flatten();
        named(&frame["function"]) || inlined.into_iter().any(|inner| named(&inner["function"]))
    })
}

/// Whether the finding is of the case: a function of the case is on its stack.
fn is_of(finding: &Value, case: &Case) -> bool {
    if finding["module"] != case.module().as_str() {
        return false;
    }
    if case.suite == PAIRS {
        return is_race_of(finding, case);
    }
    let functions = case.also.iter().map(String::as_str).chain([case.function()]);
    functions.into_iter().any(|function| runs(&finding["stack"], function))
}

/// Whether both sides of a race are functions of the case. A faulty case has a race between all of its functions.
fn is_race_of(finding: &Value, case: &Case) -> bool {
    let sides = [&finding["stack"][0]["function"], &finding["other"]["stack"][0]["function"]];
    let both = sides.iter().all(|side| case.also.iter().any(|function| *side == function));
    let all = case.also.iter().all(|function| sides.iter().any(|side| *side == function));
    both && (all || case.faults.is_empty())
}

/// What was found in a case, by kind: in how many lines. In KASAN's suite, other lines than those at fault count apart.
fn measured(report: &Value, case: &Case, marked: &BTreeSet<u64>) -> Faults {
    let marks = matches!(case.suite.as_str(), "kasan" | "kasan_tags");
    // What the kernel itself warns about is no work of a checker. Only one suite asks for races.
    let races = |finding: &Value| finding["checker"] == "drcheck";
    let asked = |finding: &&Value| finding["checker"] != "kernel" && races(finding) == (case.suite == PAIRS);
    let by_checkers = findings(report).filter(asked);
    let of_case = by_checkers.filter(|finding| is_of(finding, case));
    let places: BTreeSet<(String, u64)> = of_case
        .map(|finding| {
            let line = finding["location"]["line"].as_u64().unwrap_or(0);
            // A race has two lines, and either may be the finding's.
            let line = if case.suite == PAIRS { 0 } else { line };
            let kind = finding["kind"].as_str().unwrap_or("?");
            let elsewhere = if marks && !marked.contains(&line) { " elsewhere" } else { "" };
            (format!("{kind}{elsewhere}"), line)
        })
        .collect();
    let mut faults = Faults::new();
    for (kind, _) in places {
        *faults.entry(kind).or_default() += 1;
    }
    faults
}

fn as_expected(cases: &[Case]) -> Result<(), Failed> {
    let result = run(cases)?;
    let (report, marked) = (result.report()?, marked()?);
    let differs = |case: &Case| {
        let found = measured(report, case, &marked);
        let unlucky = case.sometimes && found.is_empty();
        (found != case.found && !unlucky).then(|| {
            let (suite, name, guest) = (&case.suite, &case.name, &case.guest);
            format!("{suite} {name} | {guest} | {} | {} | {}", show(&case.faults), show(&found), case.why)
        })
    };
    let different: Vec<String> = cases.iter().filter_map(differs).collect();
    // The first line is what the summary of all suites repeats, so it names the cases.
    ensure(different.is_empty(), || {
        let (outcome, rows) = (&report["run"]["outcome"], different.join("; "));
        format!("{TABLE} has other results than these, of a run that ended as {outcome}: {rows}")
    })
}

/// The page of results has a row for each case, with what the table says of it.
fn page() -> Result<(), Failed> {
    let path = "docs/results/exams.md";
    let text = fs::read_to_string(root().join(path))?;
    for case in cases()? {
        let row = format!("| {} | `{}` | {} |", case.suite, case.name, case.result());
        ensure(text.contains(&row), || format!("{path} lacks the row '{row}'"))?;
    }
    Ok(())
}
