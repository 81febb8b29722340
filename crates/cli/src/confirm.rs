//! `guardrail confirm`.

use crate::args::{ConfirmArgs, ListFormat};
use crate::errors::{CliError, Status};
use crate::output;
use guardrail_check::Effort;
use guardrail_check::confirm::{CONFIRMED, confirm};
use guardrail_finding::{Confirmation, Finding};
use guardrail_host::Host;
use std::time::Duration;

/// Confirms findings of an earlier run, and prints the outcome of each.
pub fn run(args: &ConfirmArgs) -> Result<Status, CliError> {
    let effort = Effort {
        tries: args.tries,
        runs: args.runs,
        follow: Duration::from_secs(args.follow),
        repeat: args.repeat,
    };
    let races = confirm(&args.out, &args.findings, effort, &Host::open()?)?;
    print(&races, args.format)?;
    let confirmed = |race: &Finding| race.confirmation.as_ref().is_some_and(|c| c.outcome == CONFIRMED);
    Ok(if races.iter().any(confirmed) { Status::Findings } else { Status::Clean })
}

fn print(races: &[Finding], format: ListFormat) -> Result<(), CliError> {
    let text = match format {
        ListFormat::Json => {
            let object =
                |race: &Finding| serde_json::json!({ "id": race.id, "confirmation": race.confirmation });
            let objects: Vec<_> = races.iter().map(object).collect();
            format!("{:#}\n", serde_json::json!({ "schema": guardrail_report::SCHEMA, "findings": objects }))
        }
        ListFormat::Text => races.iter().map(line).collect(),
    };
    output::text(&text)
}

fn line(race: &Finding) -> String {
    let place = |function: &str, offset: u64| format!("{function}+{offset:#x}");
    let mut text = format!("{} {}", race.id, place(&race.function, race.offset));
    if let Some(frame) = race.other.as_ref().and_then(|other| other.stack.first()) {
        text.push_str(&format!(" / {}", place(&frame.function, frame.offset)));
    }
    match &race.confirmation {
        Some(Confirmation { outcome, detail, consequence, repeated, .. }) => {
            let then = consequence.as_ref().map_or(String::new(), |then| format!("; {}", then.detail));
            let again = repeated.as_ref().map_or(String::new(), |again| format!("; {again}"));
            format!("{text}: {outcome}: {detail}{then}{again}\n")
        }
        None => format!("{text}: not tried\n"),
    }
}
