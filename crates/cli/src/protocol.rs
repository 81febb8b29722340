//! `guardrail protocol`: protocols of messages, drawn, checked, simulated, taken apart and exported.

use crate::args::{
    ListFormat, ProtocolCommand, ProtocolExportArgs, ProtocolFiles, ProtocolHeaderArgs, ProtocolLintArgs,
    ProtocolListArgs, ProtocolSimulateArgs,
};
use crate::errors::{CliError, Status, print_line};
use crate::output;
use guardrail_check::follow::follow;
use guardrail_host::{Host, files};
use guardrail_knowledge::chart::parse::{self as charts, Draft};
use guardrail_protocol::library::{Library, one, some};
use guardrail_protocol::summary::{self, Decomposition, Size};
use guardrail_protocol::walk::{WalkPlan, walks};
use guardrail_protocol::{Machine, ProtocolError, draw, export, header, lint};
use std::path::Path;

/// Does what the command says.
pub fn run(command: &ProtocolCommand) -> Result<Status, CliError> {
    match command {
        ProtocolCommand::List(args) => list(args)?,
        ProtocolCommand::Draw(args) => {
            let machines = machines(&args.files)?;
            let picture = draw::svg(one(&machines, &args.name).map_err(refused)?).map_err(CliError::Usage)?;
            print(&picture, args.out.as_deref())?;
        }
        ProtocolCommand::Lint(args) => return check(args),
        ProtocolCommand::Simulate(args) => return simulate(args),
        ProtocolCommand::Decompose(args) => decompose(args)?,
        ProtocolCommand::Export(args) => convert(args)?,
        ProtocolCommand::Header(args) => write_sources(args)?,
    }
    Ok(Status::Clean)
}

fn refused(error: ProtocolError) -> CliError {
    match error {
        ProtocolError::Broken(what) => CliError::Run(what),
        error => CliError::Usage(error.to_string()),
    }
}

/// The stock protocols and those of the user's files.
fn machines(given: &ProtocolFiles) -> Result<Vec<Machine>, CliError> {
    Ok(library(given)?.machines)
}

fn library(given: &ProtocolFiles) -> Result<Library, CliError> {
    let read = |path: &std::path::PathBuf| {
        let name = path.display().to_string();
        Ok((name, files::charts(path)?))
    };
    let texts = given.charts.iter().map(read).collect::<Result<Vec<_>, CliError>>()?;
    Library::new(&texts).map_err(refused)
}

/// Prints a result, or writes it to a file.
fn print(text: &str, out: Option<&Path>) -> Result<(), CliError> {
    match out {
        Some(path) => files::write(path, text),
        None => output::text(text),
    }
}

fn list(args: &ProtocolListArgs) -> Result<(), CliError> {
    let machines = machines(&args.files)?;
    let chosen = some(&machines, &args.names).map_err(refused)?;
    output::text(&match args.format {
        ListFormat::Text => summary::list(&chosen),
        ListFormat::Json => files::json(&chosen.iter().map(|machine| Size::of(machine)).collect::<Vec<_>>())?,
    })
}

fn check(args: &ProtocolLintArgs) -> Result<Status, CliError> {
    let library = library(&args.files)?;
    let chosen = some(&library.machines, &args.names).map_err(refused)?;
    let drafts: Vec<Draft> = charts::built_in().chain(library.drafts).collect();
    let mistakes: Vec<String> = (chosen.iter().flat_map(|machine| lint::lint(machine, &drafts)))
        .map(|mistake| format!("{mistake}\n"))
        .collect();
    output::text(&mistakes.concat())?;
    Ok(if mistakes.is_empty() { Status::Clean } else { Status::Findings })
}

fn simulate(args: &ProtocolSimulateArgs) -> Result<Status, CliError> {
    let machines = machines(&args.files)?;
    let machine = one(&machines, &args.name).map_err(refused)?;
    if let Some(trace) = &args.trace {
        let host = Host::open()?;
        let followed = follow(trace, machine, &args.open.reach(&host.cache)?, &host)?;
        output::text(&followed.text)?;
        if let Some(cut) = &followed.cut {
            print_line("guardrail", &format!("{}: {cut}", trace.display()));
        }
        return Ok(if followed.accepted { Status::Clean } else { Status::Findings });
    }
    let plan = WalkPlan { seed: args.seed, runs: args.runs, steps: args.steps };
    output::text(&walks(machine, &plan))?;
    Ok(Status::Clean)
}

fn decompose(args: &ProtocolListArgs) -> Result<(), CliError> {
    let machines = machines(&args.files)?;
    let chosen = some(&machines, &args.names).map_err(refused)?;
    let all = chosen.into_iter().map(Decomposition::new).collect::<Result<Vec<_>, _>>().map_err(refused)?;
    output::text(&match args.format {
        ListFormat::Text => summary::text(&all),
        ListFormat::Json => files::json(&summary::json(&all))?,
    })
}

fn convert(args: &ProtocolExportArgs) -> Result<(), CliError> {
    let machines = machines(&args.files)?;
    let machine = one(&machines, &args.name).map_err(refused)?;
    let text = export::export(machine, args.form).map_err(CliError::Usage)?;
    print(&text, args.out.as_deref())
}

fn write_sources(args: &ProtocolHeaderArgs) -> Result<(), CliError> {
    let sources = header::sources(&machines(&args.files)?).map_err(CliError::Usage)?;
    for (name, text) in [(header::HEADER, sources.header), (header::TABLES, sources.tables)] {
        let path = args.into.join(name);
        let folder = path.parent().unwrap_or(&args.into);
        if !folder.is_dir() {
            let folder = folder.display();
            return Err(CliError::Usage(format!(
                "there is no folder {folder}; name the folder of active drivers with --into"
            )));
        }
        files::write(&path, text)?;
        output::text(&format!("{}\n", path.display()))?;
    }
    Ok(())
}
