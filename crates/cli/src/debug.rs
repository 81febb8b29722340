//! `guardrail debug`.

use crate::args::DebugArgs;
use crate::errors::{CliError, Status};
use guardrail_check::snapshots::debug::{Debugger, debugger};
use std::io::Write;
use std::os::unix::process::CommandExt;

/// Replaces this process by gdb.
pub fn run(args: &DebugArgs) -> Result<Status, CliError> {
    let Debugger { head, mut command } = debugger(&args.out, &args.finding, args.batch, &args.gdb)?;
    let mut stdout = std::io::stdout();
    let _ = write!(stdout, "{head}").and_then(|()| stdout.flush());
    let gdb = command.get_program().to_string_lossy().into_owned();
    Err(CliError::io("start", gdb)(command.exec()))
}
