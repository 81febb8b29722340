//! Verdicts and certificates of `guardrail verify`, judged by others: the check of certificates, z3, Spin, and runs of the
//! driver's own machine code. It needs clang-14, gcc, z3 and spin.

#[path = "verify_cross/runs.rs"]
mod runs;
#[path = "verify_cross/spin.rs"]
mod spin;

use guardrail_protocol::model::Protocol;
use guardrail_protocol::{Machine, parse, stock};
use guardrail_verify::by_rule;
use guardrail_verify::certificate::{Certificate, Node, certificate};
use guardrail_verify::engine::search::Budget;
use guardrail_verify::front::{self, Headers};
use guardrail_verify::ir::Module;
use guardrail_verify::knowledge::Knowledge;
use guardrail_verify::messages::Protocols;
use guardrail_verify::program::{Program, Source, translate};
use guardrail_verify::recheck::{check, obligations};
use guardrail_verify::run::programs;
use guardrail_verify::verdict::{Outcome, decide};
use guardrail_vm::packages::Packages;
use guardrail_vm::{Cache, kernels};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Correct forms of the pump.
const RIGHT: [&[&str]; 7] =
    [&[], &["HARD_1"], &["HARD_2"], &["HARD_3"], &["HARD_4"], &["HARD_5"], &["HARD_2", "HARD_3"]];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn fixture(name: &str) -> PathBuf {
    root().join("tests/fixtures/active/verify").join(name)
}

/// A driver with its protocols.
pub struct Driver {
    /// Its main function.
    pub main: String,
    /// The names of its protocols.
    pub names: String,
    /// Its control skeleton.
    pub program: Program,
    /// Its protocols.
    pub machines: Vec<Machine>,
}

impl Driver {
    fn new(
        modules: &[Module],
        (main, names): (String, String),
        machines: Vec<Machine>,
        own: &[&str],
    ) -> Driver {
        let is_own = |file: &str| own.iter().any(|name| file.ends_with(name));
        let knowledge = Knowledge::stock();
        let home = modules.iter().position(|module| module.functions.contains_key(&main)).unwrap();
        let source = Source {
            modules,
            deep: true,
            main: (home, main.clone()),
            is_own: &is_own,
            knowledge: &knowledge,
            client: None,
        };
        let program = translate(&source).unwrap();
        Driver { main, names, program, machines }
    }

    /// The pump with some definitions.
    pub fn pump(definitions: &[&str]) -> Driver {
        let folder = tempfile::tempdir().unwrap();
        let file = pump_source(folder.path(), definitions);
        let module = front::module(&file, &Headers::Plain, &[]).unwrap();
        let text = std::fs::read_to_string(fixture("pump.chart")).unwrap();
        let machines = parse::machines("pump.chart", &text).unwrap();
        let modules = [module];
        let program = programs(&modules).remove(0);
        Driver::new(&modules, program, machines, &["pump.c"])
    }

    /// The programs of a driver of this repository.
    fn active(sources: &[&str]) -> Vec<Driver> {
        Driver::active_in(&root().join("active"), sources)
    }

    /// The same of a copy of `active/`.
    fn active_in(folder: &Path, sources: &[&str]) -> Vec<Driver> {
        let packages = Packages::new(&Cache::open().unwrap());
        let kernel = kernels::find(&packages, "6.1").unwrap();
        let headers = Headers::Kernel(kernels::headers_tree(&packages, &kernel).unwrap());
        let folders = ["include", "core", "drivers"].map(|name| folder.join(name));
        let modules: Vec<Module> = sources
            .iter()
            .map(|source| front::module(&folder.join("drivers").join(source), &headers, &folders).unwrap())
            .collect();
        let machines = stock::machines().unwrap();
        let all = programs(&modules).into_iter();
        all.map(|program| Driver::new(&modules, program, machines.clone(), sources)).collect()
    }

    /// The protocols as charts.
    pub fn charts(&self) -> Vec<&Protocol> {
        self.machines.iter().map(|machine| &machine.protocol).collect()
    }

    fn protocols(&self) -> Protocols {
        Protocols::new(&self.machines, &self.names.split(' ').collect::<Vec<_>>()).unwrap()
    }

    /// The certificate of its proof.
    pub fn certificate(&self) -> Certificate {
        let protocols = self.protocols();
        let decision = decide(&self.program, &protocols, &budget());
        assert!(matches!(decision.outcome, Outcome::Proved), "{} is not proved", self.main);
        certificate(&decision.graph.unwrap(), &decision.ended, &self.main, &self.names)
    }

    fn refused(&self, certificate: &Certificate) -> Option<String> {
        check(certificate, &self.program, &self.charts(), soon()).err()
    }

    /// The numbers of the rules that are broken.
    pub fn broken(&self) -> BTreeSet<u32> {
        match decide(&self.program, &self.protocols(), &budget()).outcome {
            Outcome::Proved => BTreeSet::new(),
            Outcome::Broken(faults) => faults.iter().map(|fault| fault.rule.rule()).collect(),
            Outcome::Undecided(why) | Outcome::Refused(why) => panic!("{}: {why}", self.main),
        }
    }

    fn broken_by_rule(&self) -> BTreeSet<u32> {
        let names: Vec<&str> = self.names.split(' ').collect();
        let answers = by_rule::decide(&self.program, &self.machines, &names, &budget()).unwrap();
        assert!(answers.open.is_none(), "{} is not decided", self.main);
        answers.faults.iter().map(|fault| fault.rule.rule()).collect()
    }
}

/// Writes the pump with some definitions.
pub fn pump_source(folder: &Path, definitions: &[&str]) -> PathBuf {
    let mut text: String = definitions.iter().map(|name| format!("#define {name}\n")).collect();
    text.push_str(&std::fs::read_to_string(fixture("pump.c")).unwrap());
    let file = folder.join("pump.c");
    std::fs::write(&file, text).unwrap();
    file
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(300)
}

fn budget() -> Budget {
    Budget { deadline: soon(), states: 2_000_000, work: usize::MAX }
}

/// Certificates of correct drivers hold. One in which anything that matters is changed does not.
#[test]
fn changed_certificates_are_refused() {
    for definitions in RIGHT {
        let driver = Driver::pump(definitions);
        let whole = driver.certificate();
        assert_eq!(driver.refused(&whole), None, "{definitions:?}");
        let refused = |what: String, change: &dyn Fn(&mut Certificate)| {
            let mut other = whole.clone();
            change(&mut other);
            let why = driver.refused(&other);
            assert!(why.is_some(), "{definitions:?} with {what} is accepted");
        };
        // Another listed state at the same place may hold what one holds; these are the only ones.
        let states = whole.states.len();
        let only = |at: &usize| {
            let key = |at: usize| (whole.states[at].0, whole.states[at].1, whole.states[at].2);
            (0..states).all(|other| other == *at || key(other) != key(*at))
        };
        let only: Vec<usize> = (0..states).filter(only).collect();
        for &at in only.iter().step_by(only.len() / 8) {
            refused(format!("state {at} at another place"), &|one| one.states[at].0 ^= 1);
            refused(format!("no state {at}"), &|one| one.states[at] = one.states[(at + 1) % states]);
        }
        let knows = |at: &&usize| !whole.known[whole.states[**at].3 as usize].cells.is_empty();
        let knowing: Vec<usize> = only.iter().filter(knows).copied().collect();
        for &at in knowing.iter().step_by(knowing.len() / 8 + 1) {
            refused(format!("another number in state {at}"), &|one| {
                let cell = whole.known[whole.states[at].3 as usize].cells[0].0;
                let bits = driver.program.cells[cell as usize].bits;
                one.expressions.push(Node::Number(bits, 0x55));
                let mut facts = one.known[one.states[at].3 as usize].clone();
                facts.cells[0].1 = one.expressions.len() as u32 - 1;
                one.known.push(facts);
                one.states[at].3 = one.known.len() as u32 - 1;
            });
        }
        assert!(!whole.cuts.is_empty());
        for at in 0..whole.cuts.len() {
            refused(format!("no cut {at}"), &|one| drop(one.cuts.remove(at)));
            refused(format!("no guard in cut {at}"), &|one| one.cuts[at].guards.clear());
            refused(format!("no update in cut {at}"), &|one| one.cuts[at].updates.clear());
            refused(format!("another cell in cut {at}"), &|one| one.cuts[at].cell += 1);
            let other = if whole.cuts[at].measure == "Bits" { "Counter" } else { "Bits" };
            refused(format!("another measure in cut {at}"), &|one| one.cuts[at].measure = other.to_owned());
        }
        refused("another follower".to_owned(), &|one| one.followed.clear());
        refused("a cell that is not there".to_owned(), &|one| one.followed.push(1_000_000));
        refused("a cell that is not there".to_owned(), &|one| one.known[1].cells.push((1_000_000, 0)));
        refused("a state that is not there".to_owned(), &|one| one.states[1].1 = 1_000_000);
        refused("another mode".to_owned(), &|one| one.modes[1][0] = "nowhere".to_owned());
        refused("other code".to_owned(), &|one| one.digest.push('0'));
    }
    // The same certificate is not one of another driver.
    let one = Driver::pump(&["HARD_1"]);
    let other = Driver::pump(&["HARD_4"]);
    assert!(other.refused(&one.certificate()).is_some_and(|why| why.contains("other code")));
    let mut forged = one.certificate();
    forged.digest = other.certificate().digest;
    assert!(other.refused(&forged).is_some());
}

/// What z3 says about obligations: how many cannot fail, and how many can.
fn z3(text: &str) -> (usize, usize) {
    let mut child = Command::new("z3")
        .args(["-in", "-T:300"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("z3 is needed; scripts/setup installs it");
    let mut input = child.stdin.take().unwrap();
    let text = text.to_owned();
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    let count = |word: &str| out.lines().filter(|line| *line == word).count();
    assert_eq!(count("sat") + count("unsat"), out.lines().count(), "{}", &out[..out.len().min(500)]);
    (count("unsat"), count("sat"))
}

fn discharged(driver: &Driver) {
    let whole = driver.certificate();
    let (text, count) = obligations(&whole, &driver.program, &driver.charts(), soon()).unwrap();
    assert!(count > whole.states.len() / 2, "{count}");
    assert_eq!(z3(&text), (count, 0), "{}", driver.main);
    println!("{}: z3 discharges {count} obligations of {} states", driver.main, whole.states.len());
}

/// z3 finds that each obligation of a certificate holds, and that some of a changed one do not.
#[test]
fn z3_discharges_certificates() {
    for definitions in RIGHT {
        discharged(&Driver::pump(definitions));
    }
    let driver = Driver::pump(&[]);
    let mut other = driver.certificate();
    let at = other.known.iter().position(|facts| !facts.cells.is_empty()).unwrap();
    let bits = driver.program.cells[other.known[at].cells[0].0 as usize].bits;
    other.expressions.push(Node::Number(bits, 0x55));
    other.known[at].cells[0].1 = other.expressions.len() as u32 - 1;
    let (text, count) = obligations(&other, &driver.program, &driver.charts(), soon()).unwrap();
    let (holds, fails) = z3(&text);
    assert!(fails > 0 && holds + fails == count, "{holds} {fails} {count}");
}

#[test]
fn z3_discharges_a_real_driver() {
    for driver in Driver::active(&["es1370.c", "es1370_device.c"]) {
        let whole = driver.certificate();
        assert_eq!(driver.refused(&whole), None, "{}", driver.main);
        discharged(&driver);
    }
}

/// The certificates of the larger drivers hold, too.
#[test]
#[ignore = "takes minutes"]
fn certificates_of_all_drivers_hold() {
    for sources in [
        &["ahci.c", "ahci_port.c", "ahci_hardware.c"][..],
        &["rtl8139cp.c", "rtl8139cp_hw.c", "rtl8139cp_rings.c"],
        &["es1370.c", "es1370_device.c"],
    ] {
        for driver in Driver::active(sources) {
            let whole = driver.certificate();
            let began = Instant::now();
            assert_eq!(driver.refused(&whole), None, "{}", driver.main);
            println!("{}: {} states checked in {:.1?}", driver.main, whole.states.len(), began.elapsed());
        }
    }
}

/// Each rule by itself gives the verdict of all rules together.
#[test]
fn rules_one_by_one_agree_with_all_together() {
    for definitions in RIGHT {
        let driver = Driver::pump(definitions);
        assert_eq!(driver.broken_by_rule(), BTreeSet::new(), "{definitions:?}");
    }
    for bug in 1..=6 {
        let driver = Driver::pump(&[&format!("BUG_{bug}")]);
        assert_eq!(driver.broken_by_rule(), BTreeSet::from([bug]), "BUG_{bug}");
        assert_eq!(driver.broken(), BTreeSet::from([bug]), "BUG_{bug}");
    }
    for driver in Driver::active(&["es1370.c", "es1370_device.c"]) {
        assert_eq!(driver.broken_by_rule(), BTreeSet::new(), "{}", driver.main);
    }
}

/// A copy of `active/` with a seeded fault.
fn seeded(driver: &str, patch: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let copied =
        Command::new("cp").arg("-r").arg(root().join("active/.")).arg(folder.path()).status().unwrap();
    let patch = root().join("tests/fixtures/active/bugs").join(driver).join(patch);
    let applied = Command::new("patch")
        .args(["-p1", "-s", "-F2", "-d"])
        .arg(folder.path())
        .stdin(std::fs::File::open(patch).unwrap())
        .status()
        .unwrap();
    assert!(copied.success() && applied.success());
    folder
}

/// Seeded faults: what all rules together find, each rule by itself finds. `every` says which faults are tried.
fn seeds_agree(drivers: &[&str], every: usize) {
    for driver in drivers {
        let table = root().join("tests/fixtures/active/bugs").join(driver).join("bugs.txt");
        let table = std::fs::read_to_string(table).unwrap();
        let sources = table.lines().find_map(|line| line.strip_prefix("sources ")).unwrap();
        let sources: Vec<&str> =
            sources.split(' ').map(|source| source.rsplit('/').next().unwrap()).collect();
        let seeds = table.lines().filter_map(|line| {
            let fields: Vec<&str> = line.split(" | ").map(str::trim).collect();
            let is_rule = fields.len() > 2 && fields[1].parse::<u32>().is_ok();
            is_rule.then(|| (fields[0], fields[1].parse::<u32>().unwrap()))
        });
        for (patch, rule) in seeds.step_by(every) {
            let folder = seeded(driver, patch);
            let (mut joint, mut single) = (BTreeSet::new(), BTreeSet::new());
            for program in Driver::active_in(folder.path(), &sources) {
                joint.extend(program.broken());
                single.extend(program.broken_by_rule());
            }
            println!("{driver} {patch}: rule {rule}, together {joint:?}, one by one {single:?}");
            assert!(single.contains(&rule), "{driver} {patch}");
            assert_eq!(joint, single, "{driver} {patch}");
        }
    }
}

#[test]
fn seeded_faults_break_the_same_rules_one_by_one() {
    seeds_agree(&["es1370"], 20);
}

#[test]
#[ignore = "takes minutes"]
fn all_seeded_faults_break_the_same_rules_one_by_one() {
    seeds_agree(&["es1370", "ahci", "rtl8139cp"], 1);
}

/// Prints what each rule takes by itself, in three runs: the table of `docs/results/active.md`.
#[test]
#[ignore = "a measurement"]
fn what_each_rule_takes() {
    for sources in [
        &["rtl8139cp.c", "rtl8139cp_hw.c", "rtl8139cp_rings.c"][..],
        &["ahci.c", "ahci_port.c", "ahci_hardware.c"],
        &["es1370.c", "es1370_device.c"],
    ] {
        for driver in Driver::active(sources) {
            let names: Vec<&str> = driver.names.split(' ').collect();
            for run in 1..=3 {
                let began = Instant::now();
                let answers = by_rule::decide(&driver.program, &driver.machines, &names, &budget()).unwrap();
                let all = answers.asked;
                assert!(answers.open.is_none() && answers.faults.is_empty(), "{}", driver.main);
                let count = all.len() as f64;
                let shown = |of: &dyn Fn(&by_rule::Asked) -> f64| {
                    let most = all.iter().map(of).fold(0.0, f64::max);
                    format!("{:.3} ({most:.3})", all.iter().map(of).sum::<f64>() / count)
                };
                println!(
                    "{} run {run}: {} rules in {:.2?}; seconds {}, states {}, cells {}, searches {}, subprotocols {}",
                    driver.main,
                    all.len(),
                    began.elapsed(),
                    shown(&|one| one.seconds),
                    shown(&|one| one.states as f64),
                    shown(&|one| one.followed as f64),
                    shown(&|one| f64::from(one.searches)),
                    shown(&|one| one.subprotocols as f64)
                );
                for rule in 1..=6 {
                    let own: Vec<_> = all.iter().filter(|one| one.rule == rule).collect();
                    let most = own.iter().map(|one| one.seconds).fold(0.0, f64::max);
                    let sum: f64 = own.iter().map(|one| one.seconds).sum();
                    println!("  rule {rule}: {} in {sum:.3} s, the longest {most:.3} s", own.len());
                }
            }
        }
    }
}
