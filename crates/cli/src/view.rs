//! `guardrail view`.

use crate::args::ViewArgs;
use crate::errors::{CliError, Status, print_line};
use crate::output;
use guardrail_check::view;
use guardrail_vm::Cache;
use std::io::{self, BufWriter};

/// Prints events, or with `--check` the violations of the trace's invariants.
pub fn run(args: &ViewArgs) -> Result<Status, CliError> {
    let filter = args.filter();
    filter.refuse()?;
    let reach = args.open.reach(&Cache::open()?)?;
    let (status, cut) = if args.check {
        let violations = view::check(&args.file, &reach)?;
        output::text(&violations.text)?;
        (if violations.clean { Status::Clean } else { Status::Findings }, violations.cut)
    } else {
        let mut out = BufWriter::new(io::stdout().lock());
        (Status::Clean, view::events(&args.file, &reach, &filter, &mut out)?)
    };
    if let Some(cut) = cut {
        print_line("guardrail", &format!("{}: {cut}", args.file.display()));
    }
    Ok(status)
}
