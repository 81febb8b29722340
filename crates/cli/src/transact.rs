//! `guardrail transact`: which drivers can restore their devices, and which entry points of guarded drivers on this machine
//! are transactions.

mod device;

use crate::args::{TransactCommand, TransactSetArgs};
use crate::errors::{CliError, Status};
use crate::output;
use crate::progress::Progress;
use device::Verb;
use guardrail_check::confine;
use guardrail_transact::{SurveyPlan, survey};
use guardrail_vm::error::{Error, suggest};
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::time::Instant;

/// The runtime's file: a line for each entry point, and one about its memory. What is written to it is a choice.
const CHOICES: &str = "/sys/kernel/debug/guardrail/transact";

/// Does what the command says.
pub fn run(command: &TransactCommand) -> Result<Status, CliError> {
    match command {
        TransactCommand::Survey(args) => {
            let plan = SurveyPlan { kernel: args.kernel.clone(), all: args.all };
            let found = survey(&plan, &Progress::shown(), &confine)?;
            output::text(&if args.json { found.json()? } else { found.text() })?;
        }
        TransactCommand::List => output::text(&listed(&choices()?))?,
        TransactCommand::Status => output::text(&counted(&choices()?))?,
        TransactCommand::Set(args) => set(args)?,
        TransactCommand::Checkpoint { device } => by_hand(Verb::Checkpoint, device)?,
        TransactCommand::Restore { device } => by_hand(Verb::Restore, device)?,
    }
    Ok(Status::Clean)
}

fn choices() -> Result<String, CliError> {
    fs::read_to_string(CHOICES).map_err(|error| {
        CliError::Usage(match error.kind() {
            ErrorKind::NotFound => format!(
                "there is no {CHOICES}; load a driver that was guarded with --transact, and mount debugfs"
            ),
            _ => format!("{CHOICES} cannot be read: {error}; only root may"),
        })
    })
}

fn by_hand(verb: Verb, name: &str) -> Result<(), CliError> {
    let known = choices()?;
    let begun = Instant::now();
    let device = device::run(verb, name, &modules(&known))?;
    let milliseconds = begun.elapsed().as_secs_f64() * 1000.0;
    output::text(&match verb {
        Verb::Checkpoint => format!("the configuration of {device} is noted\n"),
        Verb::Restore => format!("{device} is restored, in {milliseconds:.1} ms\n"),
    })
}

/// An entry point, as a line of the file has it.
struct Line<'a> {
    /// The module and the function, with a colon between them.
    name: &'a str,
    /// Which of its calls are transactions.
    mode: &'a str,
    /// What was counted.
    counts: &'a str,
}

fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    text.lines().filter_map(|line| {
        let (name, rest) =
            line.split_once(' ').filter(|(name, _)| name.contains(':') && !name.ends_with(':'))?;
        let (mode, counts) = rest.rsplit_once(": ")?;
        Some(Line { name, mode, counts })
    })
}

/// The modules that have entries.
fn modules(text: &str) -> BTreeSet<&str> {
    lines(text).filter_map(|line| Some(line.name.split_once(':')?.0)).collect()
}

fn listed(text: &str) -> String {
    lines(text).map(|line| format!("{:<44} {}\n", line.name, line.mode)).collect()
}

/// The entry points that ever were transactions, and what the file says of memory.
fn counted(text: &str) -> String {
    let begun = lines(text).filter(|line| !line.counts.starts_with("0 begun"));
    let rows: String = begun.map(|line| format!("{:<44} {}\n", line.name, line.counts)).collect();
    let memory = text.lines().filter(|line| line.starts_with("memory:"));
    memory.fold(rows, |all, line| all + line + "\n")
}

fn set(args: &TransactSetArgs) -> Result<(), CliError> {
    let known = choices()?;
    let condition = args.condition.as_ref().map_or(String::new(), |condition| format!(" if {condition}"));
    let choice = format!("{} {}{condition}", args.entry, args.mode);
    let symbols = || fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    fs::write(CHOICES, &choice).map_err(|error| refused(args, &known, &symbols, &error))
}

/// Why the runtime has refused a choice.
fn refused(
    args: &TransactSetArgs,
    known: &str,
    symbols: &dyn Fn() -> String,
    error: &std::io::Error,
) -> CliError {
    let function = |name: &str| name.rsplit(':').next().unwrap_or_default().to_owned();
    let wanted = function(&args.entry);
    let same = || lines(known).find(|line| function(line.name) == wanted);
    CliError::Usage(match error.kind() {
        ErrorKind::NotFound => {
            if let Some(module) = module_of(&wanted, known, &symbols()) {
                return CliError::Usage(format!(
                    "{wanted} is a function of {module}, but no entry: the kernel does not call it by a pointer, or only as \
                     the module's init or exit function, which is never a transaction"
                ));
            }
            let names: Vec<String> = lines(known).map(|line| function(line.name)).collect();
            let near = suggest(&wanted, names.iter().map(String::as_str));
            Error::Unknown { what: "entry of a guarded driver", name: args.entry.clone(), near }.to_string()
        }
        ErrorKind::PermissionDenied if same().is_some() => {
            format!("{wanted} cannot be a transaction: {}", same().map_or("", |line| line.mode))
        }
        ErrorKind::InvalidInput => format!(
            "'{} {}' is no choice: it is [MODULE:]ENTRY always, off or 1/N, with --if argN=VALUE or comm=NAME",
            args.entry, args.mode
        ),
        _ => format!("{CHOICES} cannot be written: {error}; only root may"),
    })
}

/// The guarded module that has a function, by the kernel's symbols: `ADDRESS TYPE NAME\t[MODULE]`.
fn module_of(function: &str, known: &str, symbols: &str) -> Option<String> {
    let modules = modules(known);
    let module = |line: &str| {
        let (symbol, module) = line.split_once("\t[")?;
        let module = module.strip_suffix(']')?;
        (symbol.rsplit(' ').next() == Some(function) && modules.contains(module)).then(|| module.to_owned())
    };
    symbols.lines().find_map(module)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
e1000:e1000_probe never (it binds or unbinds a device): 0 begun, 0 committed, 0 rolled back, 0 not rolled back, 0 refused
e1000:e1000_set_ringparam 1/10 if comm=ethtool: 3 begun, 2 committed, 1 rolled back, 0 not rolled back, 0 refused
e1000:e1000_get_ringparam off: 0 begun, 0 committed, 0 rolled back, 0 not rolled back, 0 refused
memory: 1024 KiB, 0 in use, 36 at most; 0 times there was none left
";

    #[test]
    fn the_file_is_read() {
        insta::assert_snapshot!(listed(TEXT), @r"
        e1000:e1000_probe                            never (it binds or unbinds a device)
        e1000:e1000_set_ringparam                    1/10 if comm=ethtool
        e1000:e1000_get_ringparam                    off
        ");
        insta::assert_snapshot!(counted(TEXT), @r"
        e1000:e1000_set_ringparam                    3 begun, 2 committed, 1 rolled back, 0 not rolled back, 0 refused
        memory: 1024 KiB, 0 in use, 36 at most; 0 times there was none left
        ");
    }

    #[test]
    fn a_choice_is_refused_in_a_sentence() {
        let said = |entry: &str, mode: &str, kind| {
            let args = TransactSetArgs { entry: entry.into(), mode: mode.into(), condition: None };
            let symbols = || "ffffffffc0 t e1000_up\t[e1000]\nffffffffc0 t up\t[other]\n".to_owned();
            refused(&args, TEXT, &symbols, &std::io::Error::from(kind)).to_string()
        };
        insta::assert_snapshot!(said("e1000_set_ringparm", "always", ErrorKind::NotFound), @"there is no entry of a guarded driver named 'e1000_set_ringparm'; the nearest are 'e1000_set_ringparam', 'e1000_get_ringparam', 'e1000_probe'");
        insta::assert_snapshot!(said("e1000_up", "always", ErrorKind::NotFound), @"e1000_up is a function of e1000, but no entry: the kernel does not call it by a pointer, or only as the module's init or exit function, which is never a transaction");
        assert!(said("up", "always", ErrorKind::NotFound).starts_with("there is no entry"));
        insta::assert_snapshot!(said("e1000:e1000_probe", "always", ErrorKind::PermissionDenied), @"e1000_probe cannot be a transaction: never (it binds or unbinds a device)");
        insta::assert_snapshot!(said("e1000_probe", "often", ErrorKind::InvalidInput), @"'e1000_probe often' is no choice: it is [MODULE:]ENTRY always, off or 1/N, with --if argN=VALUE or comm=NAME");
    }
}
