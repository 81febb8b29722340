//! `bench/run results`: runs again what the tables of `docs/results` were made with, and keeps what it prints with its
//! date, build and machine.

use crate::common::Failure;
use crate::process;
use guardrail_host::signals::Signals;
use serde::Deserialize;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The list of what is run, from the root of the repository.
const FILE: &str = "docs/results/commands.toml";
const TEXT: &str = include_str!("../../docs/results/commands.toml");
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The options.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Only these results, as --list names them (default: all)
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// The folder that they are kept in; what it has is made anew only where it is named
    #[arg(long, value_name = "DIR", default_value = "target/results")]
    out: PathBuf,
    /// Print the results, how many minutes each takes, and their tables
    #[arg(long)]
    list: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    result: Vec<Row>,
}

/// A row of the list. The head of the file says what each member is.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    page: String,
    sections: Vec<String>,
    by_hand: Option<String>,
    name: Option<String>,
    #[serde(default)]
    after: Vec<String>,
    #[serde(default)]
    minutes: u64,
    #[serde(default)]
    commands: Vec<String>,
}

/// What commands make.
#[derive(Debug)]
struct Measured {
    name: String,
    page: String,
    sections: Vec<String>,
    after: Vec<String>,
    minutes: u64,
    commands: Vec<String>,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let all = measured(TEXT)?;
    if arguments.list {
        print!("{}", listed(&all));
        return Ok(());
    }
    let chosen = in_order(&all, &arguments.names, |name| file(&arguments.out, name).exists())
        .map_err(Failure::Usage)?;
    let out = std::path::absolute(&arguments.out).map_err(|error| Failure::Usage(error.to_string()))?;
    fs::create_dir_all(&out)
        .map_err(|error| Failure::Usage(format!("cannot make {}: {error}", out.display())))?;
    let about = About::of_this_machine();
    let signals = Signals::install().map_err(|error| error.to_string())?;
    signals.run_begins();
    let mut failed = Vec::new();
    for result in chosen {
        eprintln!("results: {}, about {} min", result.name, result.minutes);
        match make(result, &about, &out, &signals) {
            Ok(()) => eprintln!("results: {}", file(&out, &result.name).display()),
            Err(why) => {
                eprintln!("results: {} failed: {why}", result.name);
                failed.push(result.name.as_str());
            }
        }
        if signals.interrupted() {
            break;
        }
    }
    match failed.as_slice() {
        [] => Ok(()),
        names => {
            Err(Failure::Run(format!("failed: {}; their output is in {}", names.join(", "), out.display())))
        }
    }
}

/// What the list says is made by commands.
fn measured(text: &str) -> Result<Vec<Measured>, String> {
    let list: List = toml::from_str(text).map_err(|error| format!("{FILE}: {error}"))?;
    let mut all: Vec<Measured> = Vec::new();
    for Row { page, sections, by_hand, name, after, minutes, commands } in list.result {
        match (name, by_hand) {
            (Some(name), None) if minutes > 0 && !commands.is_empty() => {
                if all.iter().any(|other| other.name == name) {
                    return Err(format!("{FILE} has two results '{name}'; rename one"));
                }
                all.push(Measured { name, page, sections, after, minutes, commands });
            }
            (None, Some(_)) if after.is_empty() && minutes == 0 && commands.is_empty() => {}
            _ => {
                return Err(format!(
                    "{FILE}, '{}' of {page}: give name, minutes and commands, or by_hand alone",
                    sections.join("', '")
                ));
            }
        }
    }
    Ok(all)
}

fn listed(all: &[Measured]) -> String {
    let width = all.iter().map(|result| result.name.len()).max().unwrap_or(0);
    let line = |Measured { name, page, sections, minutes, .. }: &Measured| {
        format!("{name:width$}  {minutes:4} min  {page}: {}\n", sections.join("; "))
    };
    all.iter().map(line).collect()
}

/// The results of these names, all where there are none, and before each what it needs and is not there.
fn in_order<'a>(
    all: &'a [Measured],
    names: &[String],
    is_there: impl Fn(&str) -> bool,
) -> Result<Vec<&'a Measured>, String> {
    let find = |name: &String| all.iter().find(|result| result.name == *name);
    let mut chosen: Vec<&Measured> = Vec::new();
    let mut add = |result: &'a Measured| {
        if !chosen.iter().any(|other| other.name == result.name) {
            chosen.push(result);
        }
    };
    let named: Vec<&Measured> = match names {
        [] => all.iter().collect(),
        names => names
            .iter()
            .map(|name| find(name).ok_or_else(|| format!("there is no result '{name}'; --list has all")))
            .collect::<Result<_, _>>()?,
    };
    for result in named {
        for need in &result.after {
            let need_of = || format!("{FILE}: '{}' comes after '{need}', which is not there", result.name);
            let before = find(need).ok_or_else(need_of)?;
            if !is_there(need) {
                add(before);
            }
        }
        add(result);
    }
    Ok(chosen)
}

/// Where a result is kept.
fn file(out: &Path, name: &str) -> PathBuf {
    out.join(format!("{name}.md"))
}

/// Runs a result's commands. Its file is there only where all of them ended as they should; until then, and where they
/// did not, what they printed is in a file beside it.
fn make(result: &Measured, about: &About, out: &Path, signals: &Signals) -> Result<(), String> {
    let cannot = |error: std::io::Error| format!("cannot write below {}: {error}", out.display());
    let (done, begun) = (file(out, &result.name), out.join(format!("{}.part.md", result.name)));
    let folder = out.join(&result.name);
    for old in [&done, &begun] {
        if old.exists() {
            fs::remove_file(old).map_err(cannot)?;
        }
    }
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(cannot)?;
    }
    let mut text = File::create(&begun).map_err(cannot)?;
    writeln!(text, "# {}: {}\n\n{about}", result.page, result.sections.join("; ")).map_err(cannot)?;
    let deadline = Instant::now() + Duration::from_secs(result.minutes * 60 * 4);
    for command in &result.commands {
        writeln!(text, "\n```\n$ {command}").map_err(cannot)?;
        let output = text.try_clone().map_err(cannot)?;
        let start = Instant::now();
        let status = shell(command, out, output, deadline, signals)?;
        let seconds = start.elapsed().as_secs_f64();
        writeln!(text, "```\n\n{status}, {seconds:.1} s").map_err(cannot)?;
        if !is_fine(command, status) {
            return Err(format!("{status}: {command}; what it printed is in {}", begun.display()));
        }
    }
    text.sync_all().map_err(cannot)?;
    fs::rename(&begun, &done).map_err(cannot)
}

/// Whether a command did its work. Guardrail's own says with status 1 that there are findings, and with 4 that it cut a
/// device off.
fn is_fine(command: &str, status: ExitStatus) -> bool {
    match status.code() {
        Some(0) => true,
        Some(1 | 4) => command.starts_with("guardrail "),
        _ => false,
    }
}

/// Runs a line of shell in the root of the repository, in a group of its own, which ends at the deadline and at a signal.
fn shell(
    line: &str,
    out: &Path,
    output: File,
    deadline: Instant,
    signals: &Signals,
) -> Result<ExitStatus, String> {
    let programs = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut path = programs.parent().map(Path::to_path_buf).unwrap_or_default().into_os_string();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let mut command = Command::new("sh");
    command.args(["-c", line]).current_dir(ROOT).env("PATH", path).env("OUT", out);
    command.stdin(Stdio::null()).stdout(output).process_group(0);
    process::dies_with_us(&mut command, libc::SIGTERM);
    let mut child = process::start(&mut command, "sh")?;
    loop {
        match child.try_wait().map_err(|error| format!("cannot wait for sh: {error}"))? {
            Some(status) => return Ok(status),
            None if Instant::now() < deadline && !signals.interrupted() => {
                std::thread::sleep(Duration::from_millis(100))
            }
            None => return end(&mut child),
        }
    }
}

/// Ends a group of processes: with time to end in order, and then at once.
fn end(child: &mut std::process::Child) -> Result<ExitStatus, String> {
    let group = i32::try_from(child.id()).map_err(|error| error.to_string())?;
    // SAFETY: kill takes no memory. The number stays the group's while a process is in it.
    let signal = |number| unsafe { libc::kill(-group, number) } == 0;
    for (number, seconds) in [(libc::SIGTERM, 30), (libc::SIGKILL, 10)] {
        signal(number);
        let deadline = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < deadline {
            // What the shell has started may live longer than the shell.
            if matches!(child.try_wait(), Ok(Some(_))) && !signal(0) {
                // As a program that was killed, whatever it made of the signal.
                return Ok(ExitStatus::from_raw(libc::SIGKILL));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    Err("it took too long, and did not end when it was killed".into())
}

/// What a figure needs to be compared with another.
struct About {
    date: String,
    build: String,
    machine: String,
}

impl About {
    /// A part that cannot be found is `unknown`.
    fn of_this_machine() -> About {
        let print = |program: &str, arguments: &[&str]| {
            let output = Command::new(program).args(arguments).current_dir(ROOT).output().ok()?;
            let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
            (output.status.success() && !text.is_empty()).then_some(text)
        };
        let unknown = || "unknown".to_owned();
        let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = processor.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
        let count = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
        About {
            date: print("date", &["+%d %B %Y, %H:%M"]).unwrap_or_else(unknown),
            build: print("git", &["describe", "--always", "--dirty", "--abbrev=12"]).unwrap_or_else(unknown),
            machine: format!(
                "{count} processors ({}), Linux {}",
                model.unwrap_or("unknown"),
                print("uname", &["-r"]).unwrap_or_else(unknown)
            ),
        }
    }
}

impl std::fmt::Display for About {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "Begun: {}", self.date)?;
        writeln!(f, "Build: {}", self.build)?;
        write!(f, "Machine: {}", self.machine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn about() -> About {
        About { date: "today".into(), build: "abc".into(), machine: "this".into() }
    }

    fn result(name: &str, after: &[&str], commands: &[&str]) -> Measured {
        let texts = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect();
        Measured {
            name: name.to_owned(),
            page: "p.md".to_owned(),
            sections: vec!["S".to_owned()],
            after: texts(after),
            minutes: 1,
            commands: texts(commands),
        }
    }

    /// The headings of a page below which there is a table.
    fn headings(text: &str) -> BTreeSet<String> {
        let mut heading = "";
        let mut found = BTreeSet::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix('#') {
                heading = rest.trim_start_matches('#').trim();
            } else if line.starts_with("|---") {
                found.insert(heading.to_owned());
            }
        }
        found
    }

    #[test]
    fn every_table_of_the_results_is_in_the_list_and_nothing_else() {
        let list: List = toml::from_str(TEXT).unwrap();
        let mut pages = 0;
        for entry in fs::read_dir(Path::new(ROOT).join("docs/results")).unwrap() {
            let path = entry.unwrap().path();
            let page = path.file_name().unwrap().to_string_lossy().into_owned();
            if !page.ends_with(".md") {
                continue;
            }
            pages += 1;
            let text = fs::read_to_string(&path).unwrap();
            let rows = list.result.iter().filter(|row| row.page == page);
            let listed: BTreeSet<String> = rows.flat_map(|row| row.sections.clone()).collect();
            let missing: Vec<String> = headings(&text).difference(&listed).cloned().collect();
            assert!(missing.is_empty(), "{FILE} has no row for {page}: {missing:?}");
            for section in listed {
                let is_there = text.lines().any(|line| line.trim_start_matches('#').trim() == section);
                assert!(is_there, "{FILE} names '{section}' of {page}, which has no such heading");
            }
        }
        assert!(pages > 5 && list.result.iter().all(|row| row.page.ends_with(".md")));
        let all = measured(TEXT).unwrap();
        assert_eq!(in_order(&all, &[], |_| false).unwrap().len(), all.len());
    }

    #[test]
    fn faults_of_the_list_are_named() {
        let row = "[[result]]\npage = \"p.md\"\nsections = [\"S\"]\n";
        let neither = measured(row).unwrap_err();
        assert!(neither.contains("'S' of p.md: give name, minutes and commands, or by_hand"), "{neither}");
        let one = format!("{row}name = \"n\"\nminutes = 1\ncommands = [\"true\"]\n");
        assert_eq!(measured(&one).unwrap().len(), 1);
        let twice = measured(&one.repeat(2)).unwrap_err();
        assert!(twice.contains("two results 'n'"), "{twice}");
        assert!(measured("[[result]]\nx = 1\n").unwrap_err().starts_with(FILE));
    }

    #[test]
    fn what_a_result_needs_runs_before_it_where_it_is_missing() {
        let all = [result("b", &["a"], &[]), result("a", &[], &[]), result("c", &["d"], &[])];
        let order = |names: &[&str], is_there: bool| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            let order = in_order(&all, &names, |_| is_there)?;
            Ok::<_, String>(order.iter().map(|result| result.name.clone()).collect::<Vec<_>>())
        };
        assert_eq!(order(&["b"], false).unwrap(), ["a", "b"]);
        assert_eq!(order(&["b"], true).unwrap(), ["b"]);
        assert_eq!(order(&["b", "a"], true).unwrap(), ["b", "a"]);
        assert!(order(&["x"], true).unwrap_err().contains("there is no result 'x'"));
        assert!(order(&["c"], true).unwrap_err().contains("comes after 'd', which is not there"));
    }

    #[test]
    fn what_commands_print_is_kept_also_where_they_fail() {
        let folder = tempfile::tempdir().unwrap();
        let read = |name: &str| fs::read_to_string(folder.path().join(name));
        let good = result("good", &[], &["echo one; pwd", "echo $OUT"]);
        make(&good, &about(), folder.path(), &Signals::none()).unwrap();
        let text = read("good.md").unwrap();
        assert!(text.starts_with("# p.md: S\n\nBegun: today\nBuild: abc\nMachine: this\n"), "{text}");
        assert!(text.contains("$ echo one; pwd\none\n/") && text.contains("exit status: 0"), "{text}");
        assert!(text.contains(&format!("{}\n```", folder.path().display())), "{text}");
        let bad = result("good", &[], &["echo two; exit 1", "echo three"]);
        let why = make(&bad, &about(), folder.path(), &Signals::none()).unwrap_err();
        assert!(why.starts_with("exit status: 1: echo two") && why.ends_with("good.part.md"), "{why}");
        assert!(read("good.md").is_err() && read("good.part.md").unwrap().contains("two\n```"));
    }

    #[test]
    fn a_command_that_takes_too_long_ends_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let output = File::create(folder.path().join("x")).unwrap();
        let start = Instant::now();
        // The child lives longer than the shell.
        let line = "(trap 'sleep 0.3; echo end >$OUT/ended; exit' TERM; while :; do sleep 0.1; done) & wait";
        let status =
            shell(line, folder.path(), output, start + Duration::from_millis(300), &Signals::none()).unwrap();
        assert!(!is_fine("guardrail x", status) && start.elapsed() < Duration::from_secs(20), "{status}");
        assert_eq!(fs::read_to_string(folder.path().join("ended")).unwrap(), "end\n");
    }
}
