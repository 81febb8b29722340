//! `guardrail diff`.

use crate::args::{DiffArgs, DiffFormat};
use crate::errors::{CliError, Status};
use crate::output;
use guardrail_check::{known, only_reading};
use guardrail_host::files;
use guardrail_report::compare::{SCHEMA, compare};
use guardrail_report::marks::Source;
use guardrail_report::text;
use serde_json::json;

/// Compares two reports of one driver, and prints the comparison.
pub fn run(args: &DiffArgs) -> Result<Status, CliError> {
    only_reading([args.earlier.as_path(), &args.later])?;
    let (earlier, later) = (known::report(&args.earlier)?, known::report(&args.later)?);
    let [file, later_file] = [&args.earlier, &args.later].map(|path| path.display().to_string());
    if !earlier.is_of(&later.driver) {
        return Err(CliError::Usage(format!(
            "{file} is of the driver {}, and {later_file} is of {}; only reports of the same driver are compared",
            earlier.driver, later.driver
        )));
    }
    let comparison = compare(&earlier, &later, &file, Source::Report);
    match args.format {
        DiffFormat::Json => {
            let object = json!({
                "schema": SCHEMA,
                "driver": later.driver,
                "from": { "file": file, "kernel": earlier.kernel },
                "to": { "file": later_file, "kernel": later.kernel },
                "new": comparison.new,
                "gone": comparison.gone,
                "same": comparison.same,
                "unknown": comparison.unknown,
            });
            output::text(&files::json(&object)?)?;
        }
        DiffFormat::Text => {
            let mut out = Vec::new();
            if earlier.kernel != later.kernel {
                let [from, to] = [&earlier.kernel, &later.kernel].map(|kernel| text::clean(kernel));
                output::text(&format!("Note: {file} is of kernel {from}, and {later_file} is of {to}\n"))?;
            }
            text::comparison(&comparison, &mut out).map_err(CliError::io("write", "the comparison"))?;
            output::text(&String::from_utf8_lossy(&out))?;
        }
    }
    Ok(if comparison.new.is_empty() { Status::Clean } else { Status::Findings })
}
