//! `guardrail watch SOURCE`: checks a driver again whenever its sources change.

use crate::args::WatchArgs;
use crate::errors::{CliError, Status, print_line};
use guardrail_host::progress::{Loudness, loudness};
use guardrail_host::{HostError, Signals, folders, from_source, process};
use std::process::Command;
use std::time::Duration;

/// The time between two looks at the sources.
const LOOK: Duration = Duration::from_millis(300);

/// Checks until the user ends it.
pub fn run(args: &WatchArgs, profile: Option<&str>) -> Result<Status, CliError> {
    if !from_source::is_source(&args.source) {
        return Err(HostError::Usage(from_source::no_source(&args.source)));
    }
    let signals = Signals::install()?;
    signals.run_begins();
    let mut seen = None;
    while !signals.interrupted() {
        let now = from_source::state(&args.source).map_err(|error| error.to_string());
        if seen.as_ref() != Some(&now) {
            match &now {
                Ok(_) => check(args, profile)?,
                // An editor may be about to replace a file.
                Err(why) => print_line("guardrail", why),
            }
            seen = Some(now);
            print_line("guardrail", &format!("watching {}; Ctrl-C ends it", args.source));
        }
        std::thread::sleep(LOOK);
    }
    Err(HostError::Interrupted)
}

/// Runs a check, which prints its own results. It gets the terminal's signals, too.
fn check(args: &WatchArgs, profile: Option<&str>) -> Result<(), CliError> {
    let mut command = Command::new(folders::program()?);
    command.arg("check").arg(&args.source).arg("--kept-boot");
    command.args(match loudness() {
        Loudness::Quiet => Some("--quiet"),
        Loudness::Usual => None,
        Loudness::Verbose => Some("--verbose"),
    });
    command.args(profile.map(|name| format!("--profile={name}"))).args(&args.options);
    process::kill_with_parent(&mut command);
    let ran = command.status().map_err(HostError::io("start", "guardrail check"))?;
    if let Some(status) = ran.code() {
        print_line("guardrail", &format!("the check ended with status {status}"));
    }
    Ok(())
}
