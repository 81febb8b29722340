//! Guarded modules load and unload where the stock ones do: a sample of each kernel's, and all of them with
//! `--ignored`.

use guardrail_rewrite::RewriteError;
use guardrail_tests::ensure;
use guardrail_tests::workshop::Workshop;
use guardrail_vm::Cache;
use guardrail_vm::kernels::NAMES;
use guardrail_vm::modules::{LoadPlan, ModuleFile};
use guardrail_vm::packages::Packages;
use guardrail_vm::parser::Parser;
use guardrail_vm::prepare::{Prepared, Request};
use guardrail_vm::run::Options;
use libtest_mimic::{Arguments, Failed, Trial};
use std::collections::BTreeMap;

/// One module of so many is in the sample.
const SAMPLE: usize = 200;
/// The number of modules that run in turn in a guest.
const TURNS: usize = 100;
/// The number of guests that run at a time.
const GUESTS: usize = 2;
/// The most functions of a module that cannot be proven.
const MOST_TRUSTED: usize = 100;
/// The time limit for a module, and for everything else, in seconds.
const TURN: u64 = 5;
const REST: u64 = 600;
/// A module that needs nothing; the guest's others are loaded by its workload.
const FIRST: &str = "dummy";
/// Ciphers that many modules request by name without declaring the dependency.
const ASKED_FOR: [&str; 3] = ["crc32c_generic", "crct10dif_generic", "crc64_rocksoft_generic"];
/// The runtime, where guarded modules are loaded.
const RUNTIME: &str = "guardrail";
/// The result of a module that works.
const GOOD: &str = "comes and goes";
/// The beginning of the guest's lines about modules.
const SAYS: &str = "loads: ";
/// The end of the line before a module is loaded.
const BEGINS: &str = " begins";
/// The result of a module that ended its guest.
const ENDED: &str = "the guest ended";

/// Loads each module of a list after those that it needs, and unloads all of them. Ciphers are in use for
/// some time, because they are tested.
const WORKLOAD: &str = "\
say_of() { echo \"loads: $*\" >/dev/console; }
gone() {
    for try in 1 2 3 4 5 6 7 8 9 10; do
        rmmod $1 2>/tmp/why && return
        sleep 1
    done
    false
}
turn() {
    name=$1
    shift
    back=
    for needed in $*; do
        insmod /guardrail/needed-$needed.ko 2>/dev/null
        back=\"$needed $back\"
    done
    say_of \"$name begins\"
    if insmod /guardrail/try-$name.ko 2>/tmp/why; then
        if gone $name; then say_of \"$name: comes and goes\"; else say_of \"$name: stays\"; fi
    else
        say_of \"$name: $(tail -n 1 /tmp/why | sed 's/.*: //')\"
    fi
    for needed in $back; do rmmod $needed 2>/dev/null; done
}
turns() { while read -r line; do turn $line; done </guardrail/turns; }
step turns turns
! [ -d /sys/kernel/debug/guardrail ] || sed 's/^/violations: /' /sys/kernel/debug/guardrail/violations >/dev/console
";

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for kernel in NAMES {
        let trial = |what: &str, every: usize| {
            let name = format!("{what} of {kernel} load guarded as they do otherwise");
            Trial::test(name, move || load(kernel, every))
        };
        trials.push(trial("a sample of the modules", SAMPLE).with_ignored_flag(kernel != "7.2"));
        trials.push(trial("all modules", 1).with_ignored_flag(true));
    }
    guardrail_tests::run(arguments, trials)
}

/// The sources of guests.
struct Place<'a> {
    packages: Packages,
    workshop: Workshop,
    kernel: &'a str,
}

/// The results of modules, and the consoles of their guests.
#[derive(Default)]
struct Seen {
    results: BTreeMap<String, String>,
    console: String,
}

/// A module that is tested, stock and guarded.
struct Tried {
    plan: LoadPlan,
    guarded: ModuleFile,
}

fn load(kernel: &str, every: usize) -> Result<(), Failed> {
    let packages = Packages::new(&Cache::open()?);
    let place = Place { workshop: Workshop::of(&packages, kernel)?, packages, kernel };
    let modules = &place.workshop.modules;
    // The variable names modules to test alone.
    let chosen = std::env::var("GUARDRAIL_MODULES").ok();
    let names: Vec<&str> = match &chosen {
        Some(names) => names.split(',').collect(),
        None => modules.names().skip(every / 2).step_by(every).filter(|name| *name != FIRST).collect(),
    };
    let batches: Vec<&[&str]> = names.chunks(TURNS).collect();
    let mut all = Compared::default();
    for batch in guardrail_tests::at_once(&batches, GUESTS, |names| batch(&place, names)) {
        let batch = batch.map_err(|error| error.message().unwrap_or_default().to_owned())?;
        all.differ.extend(batch.differ);
        all.notes.extend(batch.notes);
        for (result, mut names) in batch.results {
            all.results.entry(result).or_default().append(&mut names);
        }
    }
    for (result, names) in &all.results {
        let named = if result == GOOD { String::new() } else { format!(": {}", names.join(" ")) };
        println!("{kernel}: {result}: {}{named}", names.len());
    }
    all.notes.iter().for_each(|line| println!("{kernel}: {line}"));
    ensure(all.differ.is_empty(), || all.differ.join("\n"))
}

/// Modules, stock and guarded.
#[derive(Default)]
struct Compared {
    /// Guarded modules whose result differs.
    differ: Vec<String>,
    /// The results of the stock modules.
    results: BTreeMap<String, Vec<String>>,
    /// Functions that are trusted, and violations.
    notes: Vec<String>,
}

fn batch(place: &Place, names: &[&str]) -> Result<Compared, Failed> {
    let mut compared = Compared::default();
    let mut tried = Vec::new();
    for name in names {
        let mut plan = place.workshop.modules.plan(name)?;
        let mut before = Vec::new();
        for asked in ASKED_FOR.into_iter().filter(|asked| place.workshop.modules.has(asked)) {
            place.workshop.modules.add(asked, name, &mut before)?;
        }
        let more: Vec<_> = plan.before.drain(..).filter(|needed| !before.contains(needed)).collect();
        plan.before =
            before.into_iter().chain(more).filter(|needed| needed.name != plan.driver.name).collect();
        let (guarded, trusted) = guarded(place, &plan)?;
        if !trusted.is_empty() {
            compared.notes.push(format!("{name}, trusting {}", trusted.join(", ")));
        }
        tried.push(Tried { plan, guarded });
    }
    let stock = seen(place, &tried, false)?;
    let guarded = seen(place, &tried, true)?;
    for Tried { plan, .. } in &tried {
        let name = &plan.driver.name;
        let of =
            |seen: &Seen| seen.results.get(name).cloned().unwrap_or_else(|| "nothing was said".to_owned());
        let (before, now) = (of(&stock), of(&guarded));
        if before != now {
            compared.differ.push(format!("{name}: {before}; guarded: {now}\n{}", guarded.around(name)));
        }
        compared.results.entry(before).or_default().push(name.clone());
    }
    let violations = guarded.console.lines().filter(|line| line.starts_with("violations: "));
    compared.notes.extend(violations.map(str::to_owned));
    Ok(compared)
}

/// A guarded module, and its functions that cannot be proven, which are trusted.
fn guarded(place: &Place, plan: &LoadPlan) -> Result<(ModuleFile, Vec<String>), Failed> {
    let mut trusted = Vec::new();
    loop {
        let doubts = match place.workshop.guarded(plan, None, &trusted)? {
            Ok(module) => return Ok((module, trusted)),
            Err(RewriteError::Unproven { doubts }) if trusted.len() < MOST_TRUSTED => doubts,
            Err(error) => return Err(format!("{}: {error}", plan.driver.name).into()),
        };
        trusted.extend(doubts.into_iter().map(|doubt| doubt.function));
    }
}

/// Loads modules in guests: where one ends its guest, the modules after it have another guest.
fn seen(place: &Place, tried: &[Tried], guarded: bool) -> Result<Seen, Failed> {
    let mut seen = Seen::default();
    let mut rest = tried;
    while !rest.is_empty() {
        let console = guest(place, rest, guarded)?;
        let mut last = None;
        for line in console.lines().filter_map(|line| line.split_once(SAYS).map(|(_, said)| said.trim_end()))
        {
            if let Some(name) = line.strip_suffix(BEGINS) {
                last = Some(name.to_owned());
            } else if let Some((name, result)) = line.split_once(": ") {
                seen.results.insert(name.to_owned(), result.to_owned());
                last = last.filter(|last| last != name);
            }
        }
        seen.console += &console;
        let Some(last) = last else {
            // All modules ran, or the guest ended before any began.
            let done = rest.iter().all(|tried| seen.results.contains_key(&tried.plan.driver.name));
            return if done { Ok(seen) } else { Err(format!("the guest ended early:\n{console}").into()) };
        };
        seen.results.insert(last.clone(), ENDED.to_owned());
        let place = rest.iter().position(|tried| tried.plan.driver.name == last);
        rest = rest.get(place.map_or(rest.len(), |place| place + 1)..).unwrap_or_default();
    }
    Ok(seen)
}

impl Seen {
    /// The console's lines from the load of a module on.
    fn around(&self, name: &str) -> String {
        let begins = format!("{SAYS}{name}{BEGINS}");
        let after = self.console.split_once(&begins).map_or("", |(_, after)| after);
        after
            .lines()
            .take_while(|line| !line.contains(BEGINS))
            .take(60)
            .fold(String::new(), |all, line| all + "    " + line + "\n")
    }
}

/// A guest's console.
fn guest(place: &Place, tried: &[Tried], guarded: bool) -> Result<String, Failed> {
    let folder = tempfile::tempdir()?;
    let workload = folder.path().join("workload.sh");
    std::fs::write(&workload, WORKLOAD)?;
    let request =
        Request { driver: FIRST, kernel: place.kernel, workload: workload.to_str(), ..Request::default() };
    let mut prepared = Prepared::new(&place.packages, &Parser::here(), request, &mut |_| {})?;
    let mut options = Options::new(folder.path());
    if guarded {
        let driver = ModuleFile {
            name: RUNTIME.to_owned(),
            bytes: place.workshop.runtime.clone(),
            ..prepared.plan.driver.clone()
        };
        prepared.plan.before.insert(0, driver);
    }
    let mut files = BTreeMap::new();
    let mut turns = String::new();
    for Tried { plan, guarded: module } in tried {
        let module = if guarded { module } else { &plan.driver };
        files.insert(format!("try-{}.ko", module.name), module.bytes.clone());
        turns += &module.name;
        for needed in &plan.before {
            files.entry(format!("needed-{}.ko", needed.name)).or_insert_with(|| needed.bytes.clone());
            turns += &format!(" {}", needed.name);
        }
        turns += "\n";
    }
    files.insert("turns".to_owned(), turns.into_bytes());
    options.files = files.into_iter().collect();
    options.memory_mib = 1536;
    let seconds = tried.len() as u64 * TURN + REST;
    options.limits.silence = std::time::Duration::from_secs(seconds);
    Ok(guardrail_tests::unwatched(&prepared, options, seconds)?.console)
}
