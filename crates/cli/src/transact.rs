//! `guardrail transact`: which drivers can restore their devices, on which transactions of entry points will rely.

use crate::args::TransactCommand;
use crate::errors::{CliError, Status};
use crate::output;
use crate::progress::Progress;
use guardrail_transact::{SurveyPlan, survey};

/// Does what the command says.
pub fn run(command: &TransactCommand) -> Result<Status, CliError> {
    match command {
        TransactCommand::Survey(args) => {
            let plan = SurveyPlan { kernel: args.kernel.clone(), all: args.all };
            let found = survey(&plan, &Progress::shown())?;
            output::text(&if args.json { found.json()? } else { found.text() })?;
        }
    }
    Ok(Status::Clean)
}
