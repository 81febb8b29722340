//! A newcomer's first minutes: in a clean clone of HEAD, the first command of each page of the docs works through `./guardrail` alone.
//!
//! The clone has a target folder of its own. It already contains libraries that this build compiled, so that
//! cargo mostly links. Whatever the script does not build is still missing. Downloads are shared.

use guardrail_tests::{ensure, program, root};
use libtest_mimic::{Arguments, Failed, Trial};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// The time limit for a command, in seconds: for a build, a guest, and a download of the first run.
const LIMIT: &str = "1500";

/// Parts of commands that cannot run here, and why.
const LEFT_OUT: [(&str, &str); 5] = [
    ("git clone", "fetches and builds a repository of others, which takes minutes"),
    ("linux-source", "builds from the kernel's source, which takes minutes"),
    ("--running", "guards for the kernel of this machine"),
    ("mydriver", "checks a driver of the reader's own"),
    ("survey", "takes hours"),
];

fn main() {
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    let clone = Arc::new(std::sync::OnceLock::new());
    let mut trials = Vec::new();
    for page in pages() {
        let Some(commands) = first_command(&fs::read_to_string(root().join(&page)).expect("a page")) else {
            println!("{page} has no command");
            continue;
        };
        let left_out = commands.iter().find_map(|command| why_left_out(command));
        if let Some(why) = left_out {
            println!("{page}: '{}' is left out: {why}", commands.join("; "));
        }
        let clone = Arc::clone(&clone);
        let trial = Trial::test(page, move || {
            let clone: &Result<tempfile::TempDir, String> =
                clone.get_or_init(|| new_clone().map_err(|error| format!("{error:?}")));
            works(clone.as_ref().map_err(Clone::clone)?.path(), &commands)
        });
        trials.push(trial.with_ignored_flag(left_out.is_some()));
    }
    // The clone is removed with the last trial.
    drop(clone);
    libtest_mimic::run(&arguments, trials).exit();
}

/// The README and all pages under `docs/`.
fn pages() -> Vec<String> {
    let (mut folders, mut pages) = (vec![PathBuf::from("docs")], vec!["README.md".to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).expect("docs").flatten() {
            let path = folder.join(entry.file_name());
            if entry.path().is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "md") {
                pages.push(path.display().to_string());
            }
        }
    }
    pages.sort();
    pages
}

/// The first command of this program that a block of code has, with redirections, after what stands before it in
/// its block.
fn first_command(page: &str) -> Option<Vec<String>> {
    let command = |line: &str| {
        let line = line.split(" #").next().unwrap_or_default().trim().trim_start_matches("$ ");
        line.trim_start_matches("./").strip_prefix("guardrail ").map(|rest| format!("./guardrail {rest}"))
    };
    page.split("\n```").skip(1).step_by(2).find_map(|block| {
        let lines: Vec<&str> = block.lines().skip(1).collect();
        let at = lines.iter().position(|line| command(line).is_some())?;
        let before = lines[..at].iter().map(|line| line.trim().trim_start_matches("$ ").to_owned());
        Some(before.chain(command(lines[at])).collect())
    })
}

fn why_left_out(command: &str) -> Option<&'static str> {
    let to_fill_in =
        |word: &str| word.contains('…') || word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase());
    if command.split_whitespace().any(to_fill_in) {
        return Some("has words to be filled in");
    }
    LEFT_OUT.iter().find(|(part, _)| command.contains(part)).map(|(_, why)| *why)
}

/// The last command ends as one that did its work, with or without a finding. Bad usage and a failed run are
/// errors. What a page puts into `/tmp` goes into the clone.
fn works(clone: &Path, commands: &[String]) -> Result<(), Failed> {
    let temporary = clone.join("tmp");
    fs::create_dir_all(&temporary)?;
    let script = commands.join(" && ").replace("/tmp/", &format!("{}/", temporary.display()));
    let output = Command::new("timeout")
        .args(["--kill-after=20", LIMIT, "sh", "-c", &script])
        .current_dir(clone)
        .env("CARGO_TARGET_DIR", clone.join("target"))
        .stdin(Stdio::null())
        .output()?;
    match output.status.code() {
        Some(0 | 1 | 4) => Ok(()),
        status => {
            let [out, err] =
                [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            Err(format!("{script}\nends with {status:?}\n{err}{out}").into())
        }
    }
}

fn run(command: &mut Command) -> Result<(), Failed> {
    let output = command.output()?;
    ensure(output.status.success(), || format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// A clone of HEAD beside this build, so that libraries can be linked to and not copied.
fn new_clone() -> Result<tempfile::TempDir, Failed> {
    let release = program().parent().ok_or("no folder")?.to_path_buf();
    let folder =
        tempfile::Builder::new().prefix("fresh-clone-").tempdir_in(release.parent().ok_or("no folder")?)?;
    let clone = folder.path();
    // git refuses repositories of other users, unless the command line permits it.
    run(Command::new("git").args(["-c", "safe.directory=*", "clone", "--quiet"]).arg(root()).arg(clone))?;
    // An unchanged file keeps its time of change, so that cargo considers the seed fresh.
    let listed = Command::new("git").args(["ls-files"]).current_dir(clone).output()?;
    for name in String::from_utf8_lossy(&listed.stdout).lines() {
        let (ours, theirs) = (root().join(name), clone.join(name));
        if let (Ok(a), Ok(b)) = (fs::read(&ours), fs::read(&theirs))
            && a == b
        {
            fs::File::options().append(true).open(&theirs)?.set_modified(fs::metadata(&ours)?.modified()?)?;
        }
    }
    for name in ["deps", ".fingerprint", "build"] {
        seed(&release.join(name), &clone.join("target/release").join(name))?;
    }
    Ok(folder)
}

/// Libraries are linked to: cargo replaces them as a whole. The rest is copied, as cargo writes into it.
/// Programs, tests and plugins of this repository are left out.
fn seed(from: &Path, to: &Path) -> Result<(), Failed> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let to = to.join(&name);
        let ends = |end: &str| name.ends_with(end);
        if path.is_dir() {
            seed(&path, &to)?;
        } else if ends(".rlib") || ends(".rmeta") || ends(".so") && !name.starts_with("libguardrail_") {
            fs::hard_link(&path, &to)?;
        } else if ends(".d")
            || from
                .components()
                .any(|part| [".fingerprint", "build"].iter().any(|it| part.as_os_str() == *it))
        {
            fs::copy(&path, &to)?;
            fs::File::options().append(true).open(&to)?.set_modified(entry.metadata()?.modified()?)?;
        }
    }
    Ok(())
}
