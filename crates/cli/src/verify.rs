//! `guardrail verify`: an active driver's C code against the protocols that it follows.

use crate::args::{Format, VerifyArgs};
use crate::errors::{CliError, Status};
use crate::output::{self, Extent};
use guardrail_check::confine;
use guardrail_host::files;
use guardrail_protocol::library::Library;
use guardrail_protocol::{Machine, parse, stock};
use guardrail_report::columns::table;
use guardrail_report::{Report, Run, SCHEMA};
use guardrail_verify::by_rule::Asked;
use guardrail_verify::certificate::Certificate;
use guardrail_verify::front::{FrontError, Headers, Sources};
use guardrail_verify::run::{Plan, Verified, run as verify};
use guardrail_verify::stock::{Driver, find, options};
use guardrail_vm::kernels;
use guardrail_vm::packages::Packages;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

/// The largest file of certificates that is read, in bytes.
const MAX_CERTIFICATES: u64 = 64 << 20;

/// Verifies, and prints a verdict for each program.
pub fn run(args: &VerifyArgs) -> Result<Status, CliError> {
    let mut release = "no kernel".to_owned();
    let mut folders = args.include.clone();
    let mut tree = None;
    let mut driver = Driver { files: args.files.clone(), ..Driver::default() };
    let headers = if args.no_kernel {
        Headers::Plain
    } else {
        let packages = Packages::new(&guardrail_host::cache()?);
        let kernel = kernels::find(&packages, &args.kernel)?;
        release.clone_from(&kernel.release);
        let headers = kernels::headers_tree(&packages, &kernel)?;
        if let Some(name) = &args.stock {
            let source = kernels::source(&packages, &kernel)?;
            driver = find(&source, &options(&headers), name).map_err(CliError::Usage)?;
            folders.append(&mut driver.folders);
            tree = Some(source);
        }
        Headers::Kernel(headers)
    };
    // Drivers of this repository include what is in active/include.
    for file in &driver.files {
        // A name without a folder is one of this folder, which has a parent as well.
        let file = std::path::absolute(file).ok();
        let beside = file.and_then(|file| Some(file.parent()?.parent()?.join("include")));
        folders.extend(
            beside.filter(|folder| folder.join("active.h").is_file() && !args.include.contains(folder)),
        );
    }
    folders.dedup();
    let usage = |error: FrontError| CliError::Usage(error.to_string());
    let Driver { files, definitions, .. } = driver;
    let sources = Sources { files, folders, definitions, headers, tree };
    let translated = sources.translate(&|| false).map_err(usage)?;
    let read: Vec<PathBuf> = args.chart.iter().chain(&args.check).cloned().collect();
    let outputs = [&args.draw, &args.smt, &args.promela, &args.certificate].into_iter().flatten();
    confine(&read, &outputs.map(|file| files::place_of_new(file).to_path_buf()).collect::<Vec<_>>())?;
    let plan = Plan {
        files: sources.files,
        texts: translated,
        machines: machines(args)?,
        main: args.main.clone().zip(args.protocols.clone()),
        seconds: args.timeout,
        check: certificates(args)?,
        script: args.smt.is_some(),
        model: args.promela.is_some(),
        by_rule: args.by_rule,
    };
    let all = verify(&plan, &|| false).map_err(usage)?;
    if let (Some(path), Some(chart)) = (&args.draw, all.iter().find_map(|one| one.chart.as_ref())) {
        files::write(path, chart)?;
    }
    for (path, text) in [
        (&args.smt, texts(&all, |one| one.script.as_deref())),
        (&args.promela, texts(&all, |one| one.model.as_deref())),
    ] {
        if let Some(path) = path {
            files::write(path, text)?;
        }
    }
    if let Some(path) = &args.certificate {
        let certificates: Vec<_> = all.iter().filter_map(|one| one.certificate.as_ref()).collect();
        let text = serde_json::to_string(&certificates).map_err(|error| CliError::Run(error.to_string()))?;
        files::write(path, text)?;
    }
    print(args, &release, &all)?;
    Ok(if all.iter().any(|one| !one.findings.is_empty()) {
        Status::Findings
    } else if all.iter().any(|one| !one.proved) {
        Status::Undecided
    } else {
        Status::Clean
    })
}

/// A text of each program, one after the other.
fn texts(all: &[Verified], text: impl Fn(&Verified) -> Option<&str>) -> String {
    all.iter().filter_map(text).collect()
}

/// The certificates that are to be checked.
fn certificates(args: &VerifyArgs) -> Result<Option<Vec<Certificate>>, CliError> {
    let Some(path) = &args.check else { return Ok(None) };
    let wrong = |what: String| CliError::Usage(format!("{} is no certificate: {what}", path.display()));
    let text = files::input(path, MAX_CERTIFICATES)?;
    serde_json::from_slice(&text).map(Some).map_err(|error| wrong(error.to_string()))
}

/// Guardrail's own protocols and those of the user's file, numbered as `protocol header` numbers them. Plain C knows no
/// numbers of Guardrail's, so there the file stands alone.
fn machines(args: &VerifyArgs) -> Result<Vec<Machine>, CliError> {
    let usage = |error: &dyn std::fmt::Display| CliError::Usage(error.to_string());
    let Some(path) = &args.chart else {
        return stock::machines().map_err(|error| CliError::Run(error.to_string()));
    };
    let name = path.display().to_string();
    let text = files::charts(path)?;
    if args.no_kernel {
        return parse::machines(&name, &text).map_err(|error| usage(&error));
    }
    Ok(Library::new(&[(name, text)]).map_err(|error| usage(&error))?.machines)
}

fn print(args: &VerifyArgs, release: &str, all: &[Verified]) -> Result<(), CliError> {
    let name = |file: &std::path::PathBuf| file.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let notes = notes(all);
    let report = Report {
        schema: SCHEMA.to_owned(),
        driver: args.stock.clone().or_else(|| args.files.first().and_then(name)).unwrap_or_default(),
        kernel: release.to_owned(),
        tools: vec!["verify".to_owned()],
        mode: "permissive".to_owned(),
        run: Run { outcome: "completed".to_owned(), notes, ..Run::default() },
        findings: all.iter().flat_map(|one| one.findings.iter().cloned()).collect(),
        ..Report::default()
    };
    output::report(&report, args.format, Extent::Full)?;
    if args.format != Format::Text {
        return Ok(());
    }
    let mut text = String::new();
    for one in all {
        let _ = writeln!(text, "{}", verdict(one));
        text.push_str(&by_rule(&one.by_rule));
    }
    output::text(&text)
}

/// The last line about a program.
fn verdict(one: &Verified) -> String {
    let what = match (&one.undecided, one.findings.len()) {
        (Some(why), _) => format!("not decided: {why}"),
        (None, 0) if one.rounds == 0 => "the certificate of all rules holds".to_owned(),
        (None, 0) => "all rules are proved".to_owned(),
        (None, 1) => "1 rule is broken".to_owned(),
        (None, n) => format!("{n} violations of rules"),
    };
    if !one.by_rule.is_empty() {
        return format!(
            "verify: {} ({}): {what}, each by itself; {} places, at most {} states, {} searches, {:.1} s",
            one.main, one.protocols, one.places, one.states, one.rounds, one.seconds
        );
    }
    format!(
        "verify: {} ({}): {what}; {} places, {} states, {} cells followed, {} rounds, {:.1} s",
        one.main,
        one.protocols,
        one.places,
        one.states,
        one.followed.len(),
        one.rounds,
        one.seconds
    )
}

/// What the rules took, those of one protocol together.
fn by_rule(all: &[Asked]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let mut rows = vec![
        ["protocol", "rule", "subprotocols", "seconds", "states", "cells", "searches"]
            .map(str::to_owned)
            .to_vec(),
    ];
    let mut groups: BTreeMap<(u32, &str), Vec<&Asked>> = BTreeMap::new();
    for one in all {
        groups.entry((one.rule, one.protocol.as_deref().unwrap_or("all"))).or_default().push(one);
    }
    let whole: Vec<&Asked> = all.iter().collect();
    let named = groups.iter().map(|((rule, protocol), group)| (rule.to_string(), *protocol, group));
    for (rule, protocol, group) in named.chain([("all".to_owned(), "all", &whole)]) {
        let count = |of: fn(&Asked) -> f64, digits: usize| {
            let most = group.iter().map(|one| of(one)).fold(0.0, f64::max);
            let mean = group.iter().map(|one| of(one)).sum::<f64>() / group.len() as f64;
            format!("{mean:.digits$} ({most:.digits$})")
        };
        rows.push(vec![
            protocol.to_owned(),
            rule,
            group.len().to_string(),
            count(|one| one.seconds, 3),
            count(|one| one.states as f64, 0),
            count(|one| one.followed as f64, 1),
            count(|one| f64::from(one.searches), 1),
        ]);
    }
    table(&rows)
}

/// Each assumption once, with the programs or properties that make it.
fn notes(all: &[Verified]) -> Vec<String> {
    let mut texts: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for one in all {
        for text in &one.assumptions {
            texts.entry(text).or_default().push(&one.main);
        }
    }
    let who = |names: &[&str]| match names {
        [one] => format!("{one} assumes"),
        names if names.len() == all.len() => "all assume".to_owned(),
        [first, rest @ ..] => format!("{first} and {} more assume", rest.len()),
        [] => String::new(),
    };
    texts.into_iter().map(|(text, names)| format!("{}: {text}", who(&names))).collect()
}
