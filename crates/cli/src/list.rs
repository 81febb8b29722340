//! `guardrail list`: everything that arguments can name.

use crate::args::{ListArgs, ListFormat, Listed};
use crate::errors::{CliError, Status};
use crate::output;
use guardrail_analysis::checkers::TOOLS;
use guardrail_profile as profile;
use guardrail_vm::{Cache, catalog, kernels, workload};
use serde_json::{Value, json};

/// Prints a list.
pub fn run(args: &ListArgs) -> Result<Status, CliError> {
    let (columns, items) = items(args.what)?;
    match args.format {
        ListFormat::Json => {
            let text = serde_json::to_string_pretty(&items).expect("values have no odd keys");
            output::text(&format!("{text}\n"))?;
        }
        ListFormat::Text => {
            let rows: Vec<Vec<String>> =
                items.iter().map(|item| columns.iter().map(|name| cell(&item[name])).collect()).collect();
            output::text(&output::table(&rows))?;
        }
    }
    Ok(Status::Clean)
}

fn described(names: &[(&str, &str)]) -> Vec<Value> {
    names.iter().map(|(name, what)| json!({ "name": name, "description": what })).collect()
}

fn tools() -> Vec<(&'static str, &'static str)> {
    TOOLS.iter().map(|tool| (tool.name, tool.about)).collect()
}

/// The columns of the table and the items.
fn items(what: Listed) -> Result<(&'static [&'static str], Vec<Value>), CliError> {
    Ok(match what {
        Listed::Drivers => {
            let item = |entry: catalog::Entry| {
                let devices: Vec<&str> = entry.devices.iter().map(|device| device.name.as_str()).collect();
                let not = entry.not.as_ref().map(|not| match not.kernels.as_slice() {
                    [] => not.why.clone(),
                    kernels => format!("{}: {}", kernels.join(", "), not.why),
                });
                json!({ "name": entry.name, "class": entry.class, "devices": devices, "not": not })
            };
            let modules = catalog::entries().into_iter().filter(|entry| !entry.name.contains(':'));
            (&["name", "class", "devices", "not"], modules.map(item).collect())
        }
        Listed::Devices => {
            let mut list = Vec::new();
            for entry in catalog::entries() {
                for device in entry.devices {
                    list.push(json!({ "name": device.name, "driver": entry.name, "class": entry.class }));
                }
            }
            (&["name", "driver"], list)
        }
        Listed::Kernels => {
            let cache = Cache::open()?;
            let item = |kernel: kernels::Listed| {
                let state = if kernel.cached { "cached" } else { "fetched at first use" };
                json!({
                    "name": kernel.name, "release": kernel.release, "cached": kernel.cached, "state": state,
                    "default": kernel.name == kernels::DEFAULT,
                })
            };
            (&["name", "release", "state"], kernels::list(&cache).into_iter().map(item).collect())
        }
        Listed::Tools => (&["name", "description"], described(&tools())),
        Listed::Clients => (&["name", "description"], described(profile::INCLUDED)),
        Listed::Workloads => (&["name", "description"], described(&workload::NAMES)),
    })
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(all) => all.iter().map(cell).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}
