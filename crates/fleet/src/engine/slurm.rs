//! Workers in an array of Slurm. They share the store, which all nodes must see at the same path, as they must the program.
//!
//! Slurm is asked little: once to start the array, and whether it still has it where nothing moves for a while. How far the run
//! is, the store says. An array is found by its name, so that a controller that was killed finds the one it started.

use crate::engine::{Engine, Run};
use guardrail_host::folders::program;
use guardrail_host::{HostError, Status, process};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The number of workers where the user gives none.
const WORKERS: u32 = 4;
/// The time without a result after which Slurm is asked whether it has the array.
const QUIET: Duration = Duration::from_secs(30);
/// How long Slurm's controller may be away when a run begins.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long Slurm's controller may be away while nothing moves.
const OUTAGE: Duration = Duration::from_secs(600);
/// How many arrays in a row may end without a result.
const VAIN: u32 = 5;
/// The wait before a call is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// What Slurm's commands say where its controller is away.
const AWAY: [&str; 3] = ["Unable to contact slurm controller", "Connection refused", "Socket timed out"];

/// An engine whose workers are tasks of an array.
#[derive(Default)]
pub struct Slurm {
    /// How many jobs were left when something moved last, and when that was or was looked for.
    moved: Option<(usize, Instant)>,
    /// How many arrays were started since.
    vain: u32,
    /// Since when Slurm's controller is away.
    away: Option<Instant>,
}

/// Why a command of Slurm failed.
enum Failed {
    /// Its controller does not answer; it may be back later.
    Away(String),
    /// It will not succeed.
    Final(String),
}

impl Slurm {
    /// An engine without workers.
    pub fn open() -> Result<Slurm, HostError> {
        match Command::new("sbatch").arg("--version").stdin(Stdio::null()).output() {
            Ok(_) => Ok(Slurm::default()),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(HostError::Run(
                "sbatch is not installed here; run this on a machine that submits jobs to Slurm".to_owned(),
            )),
            Err(error) => Err(HostError::io("start", "sbatch")(error)),
        }
    }
}

impl Slurm {
    /// Counts an array that ended while jobs are left; an error after too many.
    fn vainly(&mut self, logs: &Path) -> Result<(), HostError> {
        self.vain += 1;
        match self.vain > VAIN {
            true => Err(HostError::Run(format!(
                "Slurm's tasks end without a result, {VAIN} arrays in a row; their logs are {}",
                logs.join("worker-*.log").display()
            ))),
            false => Ok(()),
        }
    }

    /// Bounds the time without Slurm's controller.
    fn is_away(&mut self, why: String, now: Instant) -> Result<(), HostError> {
        let since = *self.away.get_or_insert(now);
        match now.saturating_duration_since(since) > OUTAGE {
            true => Err(HostError::Run(format!(
                "nothing moves, and Slurm's controller was away for {} s: {why}",
                OUTAGE.as_secs()
            ))),
            false => Ok(()),
        }
    }
}

/// The folder of the logs of a run's workers.
fn logs(run: &Run<'_>) -> PathBuf {
    run.store.path().join("runs").join(run.id)
}

/// The name of a run's arrays.
fn name(run: &Run<'_>) -> String {
    format!("guardrail-{}-{}", run.store.id(), run.id)
}

/// Runs one of Slurm's commands, and returns what it printed.
fn call(program: &str, arguments: &[&str], input: &str) -> Result<String, Failed> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let failed = |error: std::io::Error| Failed::Final(format!("{program} cannot be run: {error}"));
    let mut child = command.spawn().map_err(failed)?;
    if let Some(mut pipe) = child.stdin.take() {
        // A command that failed has closed the pipe, and says why.
        let _ = pipe.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let words = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
    let why = format!("{program} failed: {words}");
    match AWAY.iter().any(|away| said.contains(away)) {
        true => Err(Failed::Away(why)),
        false => Err(Failed::Final(why)),
    }
}

/// Whether Slurm has tasks of the run, waiting or running.
fn has_tasks(run: &Run<'_>) -> Result<bool, Failed> {
    let printed = call("squeue", &["--noheader", "--format=%i", &format!("--name={}", name(run))], "")?;
    Ok(printed.lines().any(|line| !line.trim().is_empty()))
}

/// Starts an array of workers.
fn submit(run: &Run<'_>) -> Result<(), Failed> {
    let program = program().map_err(|error| Failed::Final(error.to_string()))?;
    let script = script(&program, run.store.path(), run.id, run.workers);
    let last = run.workers.saturating_sub(1);
    let log = logs(run).join("worker-").display().to_string();
    let arguments = [
        "--parsable".to_owned(),
        "--requeue".to_owned(),
        format!("--array=0-{last}"),
        format!("--job-name={}", name(run)),
        format!("--output={}%a.log", log.replace('%', "%%")),
        "--open-mode=append".to_owned(),
    ];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    call("sbatch", &arguments, &script).map(drop)
}

/// The script of a task: a worker that is killed is started again, and goes on with the job that it had. One that was
/// interrupted, is of no use, or is set aside ends the task, and so does one that ends at once 50 times in a row.
fn script(program: &Path, store: &Path, run: &str, workers: u32) -> String {
    let quoted = |path: &Path| format!("'{}'", path.display().to_string().replace('\'', r"'\''"));
    let (program, store) = (quoted(program), quoted(store));
    let [usage, unfit, interrupted] = [Status::Usage, Status::Unfit, Status::Interrupted].map(|of| of as u8);
    let of_worker = process::OF_WORKER;
    format!(
        "#!/bin/sh\n\
         export GUARDRAIL_CONFIG= {of_worker}=1\n\
         times=0\n\
         began=$(date +%s)\n\
         until {program} fleet work --store {store} --run {run} --of {workers} --index \"$SLURM_ARRAY_TASK_ID\"; do\n\
         \tstatus=$?\n\
         \tcase $status in {usage} | {unfit} | {interrupted}) exit $status ;; esac\n\
         \tnow=$(date +%s)\n\
         \tif [ $((now - began)) -gt 10 ]; then times=0; fi\n\
         \tbegan=$now\n\
         \ttimes=$((times + 1))\n\
         \tif [ $times = 50 ]; then exit 1; fi\n\
         \tsleep 0.2\n\
         done\n"
    )
}

impl Engine for Slurm {
    fn usual_workers(&self) -> u32 {
        WORKERS
    }

    fn start(&mut self, run: &mut Run<'_>) -> Result<(), HostError> {
        let end = Instant::now() + PATIENCE;
        loop {
            let started = has_tasks(run).and_then(|has| if has { Ok(()) } else { submit(run) });
            match started {
                Ok(()) => break,
                Err(Failed::Away(_)) if Instant::now() < end && !run.host.signals.interrupted() => {
                    std::thread::sleep(AGAIN);
                }
                Err(Failed::Away(why) | Failed::Final(why)) => return Err(HostError::Run(why)),
            }
        }
        self.moved = Some((run.left.len(), Instant::now()));
        Ok(())
    }

    fn wait(&mut self, run: &mut Run<'_>, time: Duration) -> Result<(), HostError> {
        std::thread::sleep(time);
        let (left, since) = self.moved.unwrap_or((usize::MAX, Instant::now()));
        if run.left.len() < left {
            *self = Slurm { moved: Some((run.left.len(), Instant::now())), ..Slurm::default() };
            return Ok(());
        }
        if since.elapsed() < QUIET {
            return Ok(());
        }
        self.moved = Some((left, Instant::now()));
        let again = match has_tasks(run) {
            Ok(true) => Ok(()),
            Ok(false) => {
                self.vainly(&logs(run))?;
                submit(run)
            }
            Err(failed) => Err(failed),
        };
        match again {
            Ok(()) => {
                self.away = None;
                Ok(())
            }
            Err(Failed::Away(why)) => self.is_away(why, Instant::now()),
            Err(Failed::Final(why)) => Err(HostError::Run(why)),
        }
    }

    fn stop(&mut self, run: &Run<'_>) {
        // Workers end by themselves when nothing is left, but tasks may still wait in the queue.
        let _ = call("scancel", &[&format!("--name={}", name(run))], "");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_has_paths_in_quotes() {
        let text = script(Path::new("/a b/guardrail"), Path::new("/it's"), "0123456789abcdef", 4);
        let line = r#"until '/a b/guardrail' fleet work --store '/it'\''s' --run 0123456789abcdef --of 4 --index "$SLURM_ARRAY_TASK_ID"; do"#;
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn a_command_that_fails_says_why_in_a_sentence() {
        let why = |failed| match failed {
            Err(Failed::Away(why)) => format!("away: {why}"),
            Err(Failed::Final(why)) => why,
            Ok(text) => text,
        };
        let shell = |text: &str| why(call("sh", &["-c", text], ""));
        assert_eq!(shell("echo a >&2; echo b >&2; exit 1"), "sh failed: a; b");
        assert!(shell("echo 'Unable to contact slurm controller' >&2; exit 1").starts_with("away: "));
        assert_eq!(why(call("cat", &[], "x")), "x");
        assert!(why(call("/nonexistent/sbatch", &[], "")).contains("cannot be run"));
    }

    #[test]
    fn the_loop_starts_a_killed_worker_again_and_ends() {
        let folder = tempfile::tempdir().unwrap();
        let (program, count) = (folder.path().join("guardrail"), folder.path().join("count"));
        let of = |last: u32| {
            let text = format!(
                "#!/bin/sh\necho >>{0}\n[ $(wc -l <{0}) -lt 3 ] && kill -9 $$\nexit {last}\n",
                count.display()
            );
            std::fs::write(&program, text).unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(&program, mode).unwrap();
            let _ = std::fs::remove_file(&count);
            let text = script(&program, folder.path(), "0123456789abcdef", 1);
            let ran = Command::new("sh").arg("-c").arg(text).output().unwrap();
            (ran.status.code(), std::fs::read(&count).unwrap().len())
        };
        assert_eq!(of(0), (Some(0), 3));
        assert_eq!(of(2), (Some(2), 3));
        // The machine lacks something.
        assert_eq!(of(75), (Some(75), 3));
    }

    #[test]
    fn tasks_that_end_at_once_end_the_run() {
        let mut slurm = Slurm::default();
        let folder = Path::new("/store/runs/1");
        (0..VAIN).for_each(|_| slurm.vainly(folder).unwrap());
        let error = slurm.vainly(folder).unwrap_err().to_string();
        assert!(error.ends_with("their logs are /store/runs/1/worker-*.log"), "{error}");
    }

    #[test]
    fn a_controller_that_stays_away_ends_the_run() {
        let (mut slurm, now) = (Slurm::default(), Instant::now());
        slurm.is_away("x".to_owned(), now).unwrap();
        slurm.is_away("x".to_owned(), now + OUTAGE).unwrap();
        let error = slurm.is_away("refused".to_owned(), now + OUTAGE + QUIET).unwrap_err().to_string();
        assert!(error.ends_with("was away for 600 s: refused"), "{error}");
    }
}
