//! `bench/run oracle`: what KFENCE reports of the planted memory bugs of `zoo/kernel-*`.
//!
//! KFENCE is the kernel's own sampling checker: every so often one allocation is put beside a guard page. It is an oracle,
//! independent of Guardrail: what it reports is true, and what it misses was not sampled, or is memory that it never has.
//! Plain QEMU runs the modules, each once and then many times more; the reports stand in the guest's console.

use crate::common::Failure;
use crate::process;
use guardrail_host::zoo;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// What runs in the guest.
const SCRIPT: &str = include_str!("oracle.sh");

/// The options.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The kernels, separated by commas
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "6.1,6.12,7.2")]
    kernel: Vec<String>,
    /// How often each bug happens; a twin a tenth as often
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    loads: u32,
    /// Longest time that a guest may take
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    timeout: u32,
}

/// A planted bug.
struct Bug {
    folder: String,
    module: String,
    function: String,
    kind: String,
    memory: String,
    has_workload: bool,
}

/// Reports on one module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Reports {
    /// Of the first time.
    once: u32,
    /// Where the bad access was made.
    at_access: u32,
    /// Later, when the memory was freed.
    at_free: u32,
    /// It could not be loaded or unloaded.
    failed: bool,
}

/// What one guest's console says.
#[derive(Debug, Default, PartialEq, Eq)]
struct Console {
    /// False where the kernel has no KFENCE.
    kfence: bool,
    modules: BTreeMap<String, Reports>,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    Ok(measure(arguments)?)
}

fn measure(arguments: &Arguments) -> Result<(), String> {
    let bugs = bugs(&zoo_folder()?)?;
    let mut consoles = Vec::new();
    for kernel in &arguments.kernel {
        eprintln!("{} bugs and their twins on {kernel}", bugs.len());
        consoles.push(guest(arguments, kernel, &bugs)?);
    }
    print_table(arguments, &bugs, &consoles);
    // A correct twin that KFENCE reports would be a wrong zoo; so would be a module that does not come or go.
    let loud = |console: &Console| {
        let of = |(module, reports): (&String, &Reports)| {
            let accused = module.ends_with("_ok") && (reports.at_access > 0 || reports.at_free > 0);
            (reports.failed || accused).then(|| module.clone())
        };
        console.modules.iter().filter_map(of).collect::<Vec<String>>()
    };
    let wrong: Vec<String> = consoles.iter().flat_map(loud).collect();
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(format!("reported though correct, or not loaded and unloaded: {}", wrong.join(", "))),
    }
}

/// The zoo beside the program, or in the checkout that it was built in.
fn zoo_folder() -> Result<PathBuf, String> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../zoo");
    here.canonicalize().map_err(|error| format!("the zoo is not at {}: {error}", here.display()))
}

/// The bugs that KAddrcheck is to find; those without a workload of their own come first, as the first has the oracle's.
fn bugs(zoo: &Path) -> Result<Vec<Bug>, String> {
    let mut bugs = Vec::new();
    let drivers = zoo::drivers(zoo).map_err(|error| format!("cannot list {}: {error}", zoo.display()))?;
    for (name, folder) in drivers {
        let Ok(text) = fs::read_to_string(folder.join("expect.json")) else { continue };
        let expect: Value = serde_json::from_str(&text)
            .map_err(|error| format!("{} is no JSON: {error}", folder.join("expect.json").display()))?;
        if expect["client"] != "kaddrcheck" {
            continue;
        }
        let word = |name: &str| expect[name].as_str().unwrap_or("").to_owned();
        bugs.push(Bug {
            module: name.replace('-', "_"),
            folder: name,
            function: word("function"),
            kind: word("kind"),
            memory: word("memory"),
            has_workload: expect["workload"].is_string(),
        });
    }
    bugs.sort_by(|a, b| (a.has_workload, &a.folder).cmp(&(b.has_workload, &b.folder)));
    match bugs.first() {
        Some(first) if !first.has_workload => Ok(bugs),
        _ => Err(format!("{} holds no bug of kaddrcheck without a workload", zoo.display())),
    }
}

/// Runs all bugs and twins in one guest, without any tracer.
fn guest(arguments: &Arguments, kernel: &str, bugs: &[Bug]) -> Result<Console, String> {
    let folder = tempfile::tempdir().map_err(|error| format!("cannot make a temporary folder: {error}"))?;
    let folder = folder.path();
    let failed = |error: std::io::Error| format!("cannot write to {}: {error}", folder.display());
    let (script, out) = (folder.join("oracle.sh"), folder.join("run"));
    fs::write(&script, SCRIPT).map_err(failed).and_then(|()| {
        let drivers =
            bugs.iter().flat_map(|bug| [format!("zoo/{}", bug.folder), format!("zoo/{}_ok", bug.folder)]);
        let (loads, timeout) = (format!("LOADS={}", arguments.loads), arguments.timeout.to_string());
        let output = process::guardrail()?
            .arg("check")
            .args(drivers)
            .args(["--kernel", kernel, "--observe", "none", "--gate", "off", "--timeout", &timeout])
            .args(["--append", "kfence.sample_interval=1", "--set", &loads])
            .args(["--workload".as_ref(), script.as_os_str(), "--out".as_ref(), out.as_os_str()])
            .output()
            .map_err(|error| format!("cannot start guardrail: {error}"))?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            return Err(format!("the run on {kernel} failed: {}", text.lines().last().unwrap_or("no word")));
        }
        let console = out.join("console.log");
        let console =
            fs::read(&console).map_err(|error| format!("cannot read {}: {error}", console.display()))?;
        read(&String::from_utf8_lossy(&console), bugs)
    })
}

/// Reads the marks of the script and the reports between them.
fn read(text: &str, bugs: &[Bug]) -> Result<Console, String> {
    let mut console = Console { kfence: true, ..Console::default() };
    let (mut current, mut first, mut ended) = (None::<String>, false, 0);
    let mut lines = text.lines().map(|line| line.split_once("] ").map_or(line, |(_, text)| text));
    while let Some(line) = lines.next() {
        if let Some(mark) = line.trim_end().strip_prefix("oracle: ") {
            match mark.split_once(' ') {
                Some((word, module)) => {
                    first = word == "once";
                    ended += u32::from(word == "end");
                    console.modules.entry(module.to_owned()).or_default().failed |= word == "failed";
                    current = (word != "end").then(|| module.to_owned());
                }
                None => console.kfence &= mark != "no-kfence",
            }
        } else if line.starts_with("BUG: KFENCE: ") {
            // The stack of the access comes first; behind the line of the object are those of its allocation and free.
            let header = |text: &&str| !text.starts_with("kfence-#") && !text.starts_with("=====");
            let stack: Vec<&str> = std::iter::once(line).chain(lines.by_ref().take_while(header)).collect();
            let Some(module) = &current else { continue };
            let plain = module.trim_end_matches("_ok");
            let Some(bug) = bugs.iter().find(|bug| bug.module == plain) else { continue };
            let mine = format!("[{module}]");
            if !stack.iter().any(|frame| frame.contains(&mine)) {
                continue;
            }
            let reports = console.modules.entry(module.clone()).or_default();
            let function = format!("{}+", bug.function);
            match stack.iter().any(|frame| frame.contains(&function)) {
                true => reports.at_access += 1,
                false => reports.at_free += 1,
            }
            reports.once += u32::from(first);
        }
    }
    match ended as usize == bugs.len() * 2 {
        true => Ok(console),
        false => Err(format!("the console has {ended} modules instead of {}", bugs.len() * 2)),
    }
}

fn print_table(arguments: &Arguments, bugs: &[Bug], consoles: &[Console]) {
    let columns = || arguments.kernel.iter().zip(consoles);
    print!("{:<18} {:<15} {:<8}", "bug", "kind", "memory");
    columns().for_each(|(kernel, _)| {
        print!(" {:>10} {:>26}", format!("{kernel}, once"), format!("{} times", arguments.loads))
    });
    println!();
    for bug in bugs {
        print!("{:<18} {:<15} {:<8}", bug.folder, bug.kind, bug.memory);
        for (_, console) in columns() {
            let reports = console.modules.get(&bug.module).cloned().unwrap_or_default();
            let once = if reports.once > 0 { "reported" } else { "-" };
            let all = match (reports.at_access, reports.at_free) {
                _ if !console.kfence => "no KFENCE".to_owned(),
                (0, 0) => "-".to_owned(),
                (n, 0) => format!("{n} at the access"),
                (0, n) => format!("{n} when freed"),
                (n, m) => format!("{n} at the access, {m} freed"),
            };
            print!(" {once:>10} {all:>26}");
        }
        println!();
    }
    for (kernel, console) in columns() {
        let count = |wanted: fn(&Reports) -> bool| {
            bugs.iter().filter(|bug| console.modules.get(&bug.module).is_some_and(wanted)).count()
        };
        let once = count(|reports| reports.once > 0);
        let ever = count(|reports| reports.at_access + reports.at_free > 0);
        println!("{kernel}: KFENCE reports {once} of {} at the first time, {ever} in all", bugs.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bug(name: &str, function: &str) -> Bug {
        Bug {
            folder: name.replace('_', "-"),
            module: name.into(),
            function: function.into(),
            kind: String::new(),
            memory: String::new(),
            has_workload: false,
        }
    }

    const CONSOLE: &str = "\
[    1.0] oracle: once a
[    1.1] ==================================================================
[    1.1] BUG: KFENCE: use-after-free read in a_read+0x5/0x10 [a]
[    1.1] Use-after-free read at 0x00000000a35b06c3 (in kfence-#88):
[    1.1]  a_read+0x5/0x10 [a]
[    1.1] kfence-#88: 0x000000005b6bd0d0-0x0000000012b0ab39, size=24, cache=zoo_jobs
[    1.1] allocated by task 88 on cpu 0 at 1.0s (0.1s ago):
[    1.1]  a_init+0x5/0x10 [a]
[    1.2] oracle: again a
[    1.3] BUG: KFENCE: memory corruption in a_exit+0x5/0x10 [a]
[    1.3] kfence-#89: 0x000000005b6bd0d0-0x0000000012b0ab39, size=24, cache=zoo_jobs
[    1.3] allocated by task 88 on cpu 0 at 1.0s (0.1s ago):
[    1.3]  a_read+0x5/0x10 [a]
[    1.3] oracle: end a
[    1.4] oracle: once a_ok
[    1.4] BUG: KFENCE: memory corruption in others+0x5/0x10
[    1.4] kfence-#89: 0x000000005b6bd0d0-0x0000000012b0ab39, size=24, cache=zoo_jobs
[    1.4] oracle: failed a_ok
[    1.4] oracle: end a_ok
";

    #[test]
    fn reports_belong_to_the_module_on_the_stack_of_the_access() {
        let console = read(CONSOLE, &[bug("a", "a_read")]).unwrap();
        assert!(console.kfence);
        assert_eq!(console.modules["a"], Reports { once: 1, at_access: 1, at_free: 1, failed: false });
        assert_eq!(console.modules["a_ok"], Reports { failed: true, ..Reports::default() });
    }

    #[test]
    fn a_console_that_ends_early_is_an_error() {
        let cut = &CONSOLE[..CONSOLE.find("[    1.4] oracle: end").unwrap()];
        assert!(read(cut, &[bug("a", "a_read")]).unwrap_err().contains("has 1 modules"));
    }

    #[test]
    fn a_kernel_without_kfence_is_said_to_have_none() {
        let text = format!("[    0.9] oracle: no-kfence\n{CONSOLE}");
        assert!(!read(&text, &[bug("a", "a_read")]).unwrap().kfence);
    }
}
