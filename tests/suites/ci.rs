//! Guardrail in the CI of others: what their programs read is valid for their own validators, and the recipes of the example work.

#[path = "ci/recipes.rs"]
mod recipes;
#[path = "ci/reports.rs"]
mod reports;
#[path = "ci/takes.rs"]
mod takes;
#[path = "ci/validators.rs"]
mod validators;
#[path = "ci/yaml.rs"]
mod yaml;

use guardrail_report::fail_on::FailOn;
use guardrail_report::{Report, code_quality, junit, ktap, sarif};
use guardrail_tests::{ensure, root};
use libtest_mimic::{Arguments, Failed, Trial};
use recipes::{Clone, items};
use serde_json::{Value, json};
use std::path::Path;
use validators::Validators;

fn main() {
    let trials = vec![
        Trial::test("SARIF is valid for the schema of OASIS", valid_sarif),
        Trial::test("GitHub and GitLab take the SARIF", taken_sarif),
        Trial::test("GitLab takes the Code Quality", taken_code_quality),
        Trial::test("JUnit is valid for its schema, and counts what it has", valid_junit),
        Trial::test("the kernel's reader takes the KTAP", read_ktap),
        Trial::test("the validators refuse what is wrong", refused),
        Trial::test("the recipes have what their servers need", well_formed),
        Trial::test("scripts of the recipes report what is missing", scripts),
        Trial::test("the workflow of GitHub passes with a known finding", github),
        Trial::test("the pipeline of GitLab fails for a new fault", gitlab),
        Trial::test("the job of a lab reports each case", lava),
    ];
    guardrail_tests::run(Arguments::from_args(), trials)
}

/// A root below which the sources of the reports are.
fn sources() -> Option<&'static Path> {
    Some(Path::new("/src/drv"))
}

fn bytes(write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> Result<Vec<u8>, Failed> {
    let mut out = Vec::new();
    write(&mut out)?;
    Ok(out)
}

fn sarif_of(report: &Report) -> Result<Vec<u8>, Failed> {
    bytes(|out| sarif::write_in(report, sources(), out))
}

fn valid_sarif() -> Result<(), Failed> {
    let validators = Validators::open()?;
    for (name, report) in reports::all() {
        for root in [None, sources()] {
            let wrong = validators.sarif(&bytes(|out| sarif::write_in(&report, root, out))?)?;
            ensure(wrong.is_empty(), || format!("{name}:\n{wrong}"))?;
        }
    }
    Ok(())
}

fn taken_sarif() -> Result<(), Failed> {
    for (name, report) in reports::all() {
        let wrong = takes::sarif(&serde_json::from_slice(&sarif_of(&report)?)?);
        ensure(wrong.is_empty(), || format!("{name}:\n{}", wrong.join("\n")))?;
    }
    Ok(())
}

fn taken_code_quality() -> Result<(), Failed> {
    for (name, report) in reports::all() {
        let written = bytes(|out| code_quality::write(&report, sources(), out))?;
        let wrong = takes::code_quality(&serde_json::from_slice(&written)?);
        ensure(wrong.is_empty(), || format!("{name}:\n{}", wrong.join("\n")))?;
    }
    Ok(())
}

/// The cases of a report: the run, the checkers that found nothing to fail for, and the findings.
fn cases(report: &Report, fail_on: &FailOn) -> usize {
    let failing = |tool: &&String| {
        let name = tool.split(':').next();
        !report.findings.iter().any(|finding| Some(&*finding.checker) == name && fail_on.fails(finding))
    };
    1 + report.tools.iter().filter(failing).count() + report.findings.len()
}

fn failing(report: &Report, fail_on: &FailOn) -> usize {
    report.findings.iter().filter(|finding| fail_on.fails(finding)).count()
}

fn valid_junit() -> Result<(), Failed> {
    let validators = Validators::open()?;
    for (name, report) in reports::all() {
        for fail_on in [FailOn::default(), FailOn::Any, FailOn::Never] {
            let written = bytes(|out| junit::write(&report, &fail_on, out))?;
            let wrong = validators.junit(&written)?;
            ensure(wrong.is_empty(), || format!("{name}:\n{wrong}"))?;
            let text = String::from_utf8(written)?;
            let broken = usize::from(report.run.outcome != "completed");
            let counts = [cases(&report, &fail_on), failing(&report, &fail_on), broken];
            let found = ["<testcase ", "<failure ", "<error "].map(|element| text.matches(element).count());
            ensure(found == counts, || format!("{name}: {found:?}, but {counts:?} were expected"))?;
            let [tests, failures, errors] = counts;
            let said = format!("tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\"");
            ensure(text.matches(&said).count() == 2, || format!("{name}: no {said} in {text}"))?;
        }
    }
    Ok(())
}

fn read_ktap() -> Result<(), Failed> {
    let validators = Validators::open()?;
    for (name, report) in reports::all() {
        for fail_on in [FailOn::default(), FailOn::Never] {
            let read = validators.ktap(&bytes(|out| ktap::write(&report, &fail_on, out))?)?;
            let [top] = items(&read["tests"]) else { return Err(format!("{name}: {read}").into()) };
            let with =
                |status: &str| items(&top["tests"]).iter().filter(|test| test["status"] == status).count();
            let broken = usize::from(report.run.outcome != "completed");
            let (all, failed) = (cases(&report, &fail_on), failing(&report, &fail_on) + broken);
            let skipped = report.findings.len() - failing(&report, &fail_on);
            let found = [with("SUCCESS"), with("FAILURE"), with("SKIPPED")];
            let right = read["errors"] == 0
                && top["expected"] == all
                && found == [all - failed - skipped, failed, skipped];
            ensure(right, || {
                format!("{name}: {found:?} of {all}, with {failed} failed and {skipped} skipped\n{read:#}")
            })?;
            ensure(top["status"] == if failed == 0 { "SUCCESS" } else { "FAILURE" }, || {
                format!("{name}: {top:#}")
            })?;
        }
    }
    Ok(())
}

/// A check that cannot fail would be worth nothing.
fn refused() -> Result<(), Failed> {
    let validators = Validators::open()?;
    let (_, report) = reports::all().swap_remove(3);
    let log: Value = serde_json::from_slice(&sarif_of(&report)?)?;
    let place = "/runs/0/results/0/locations/0/physicalLocation";
    let changes: [(&str, Value); 5] = [
        ("/runs/0/results/0/ruleId", json!(3)),
        ("/runs/0/results/0/level", json!("grave")),
        ("/runs/0/results/0/stacks", json!([{ "frame": [] }])),
        (&format!("{place}/artifactLocation/uri"), json!("a b")),
        (&format!("{place}/region/startLine"), json!(0)),
    ];
    for (at, value) in changes {
        let mut log = log.clone();
        *log.pointer_mut(at).ok_or(format!("no {at}"))? = value;
        let wrong = validators.sarif(&serde_json::to_vec(&log)?)?;
        ensure(!wrong.is_empty(), || format!("the schema takes another {at}"))?;
    }
    let mut log = log;
    log["runs"][0]["results"][0].as_object_mut().and_then(|result| result.remove("partialFingerprints"));
    ensure(takes::sarif(&log).len() == 1, || "a fingerprint may be missing".into())?;
    let xml = String::from_utf8(bytes(|out| junit::write(&report, &FailOn::default(), out))?)?;
    for (old, new) in
        [("time=", "Time="), ("<failure ", "<failing "), ("drv", "\u{1}"), ("drv", "\u{ffff}"), ("drv", "&")]
    {
        let wrong = validators.junit(xml.replacen(old, new, 1).as_bytes())?;
        ensure(!wrong.is_empty(), || format!("the schema takes {new:?} for {old:?}"))?;
    }
    let text = String::from_utf8(bytes(|out| ktap::write(&report, &FailOn::default(), out))?)?;
    for (old, new) in [
        ("1..5", "1..6"),
        ("ok 2 ", "ok 3 "),
        ("  # ", "  # Subtest: x\n  # "),
        ("  # ", "reboot: System halted\n"),
    ] {
        let read = validators.ktap(text.replacen(old, new, 2).as_bytes())?;
        ensure(text.contains(old) && read["errors"] != 0, || {
            format!("{new:?} for {old:?}: {read:#}\n{text}")
        })?;
    }
    Ok(())
}

fn well_formed() -> Result<(), Failed> {
    let example = root().join(recipes::EXAMPLE);
    let read = |name: &str| yaml::read(&example.join(name));
    let wrong = [
        takes::workflow(&read(recipes::GITHUB)?),
        takes::pipeline(&read(recipes::GITLAB)?["guardrail"]),
        takes::lab_job(&read(recipes::LAVA)?),
    ];
    let wrong = wrong.concat();
    ensure(wrong.is_empty(), || wrong.join("\n"))?;
    ensure(yaml::parse("a: 1\na: 2").is_err() && yaml::parse("a: [1").is_err(), || {
        "broken YAML is taken".into()
    })
}

fn scripts() -> Result<(), Failed> {
    let clone = Clone::new()?;
    let (status, said) = clone.run("sh", "PATH=/usr/bin:/bin ci/get-guardrail", &[])?;
    ensure(status != 0 && said.contains("GUARDRAIL_URL: set it to"), || said.clone())?;
    let (status, _) = clone.run("sh", ": >empty; ci/ktap-to-lava empty", &[])?;
    ensure(status == 1 && clone.cases()? == [("guardrail-report".to_owned(), "fail".to_owned())], || {
        "an empty file".into()
    })?;
    for (name, report) in reports::all() {
        let clone = Clone::new()?;
        let fail_on = FailOn::default();
        std::fs::write(clone.top().join("a.ktap"), bytes(|out| ktap::write(&report, &fail_on, out))?)?;
        let (status, said) = clone.run("sh", "ci/ktap-to-lava a.ktap", &[])?;
        let got = clone.cases()?;
        let plain = |name: &str| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
        };
        let broken = usize::from(report.run.outcome != "completed");
        let with = |result: &str| got.iter().filter(|case| case.1 == result).count();
        let right = status == 0
            && got.len() == cases(&report, &fail_on)
            && with("fail") == failing(&report, &fail_on) + broken
            && with("skip") == report.findings.len() - failing(&report, &fail_on)
            && got.iter().all(|(name, _)| plain(name));
        ensure(right, || format!("{name}: {status} {said} {got:?}"))?;
    }
    Ok(())
}

/// The lines of a file with this text, from 1.
fn lines(text: &[u8], wanted: &str) -> Vec<usize> {
    let text = String::from_utf8_lossy(text);
    text.lines().enumerate().filter(|(_, line)| line.contains(wanted)).map(|(at, _)| at + 1).collect()
}

fn github() -> Result<(), Failed> {
    let clone = Clone::new()?;
    let ran = clone.github()?.with(0)?;
    ensure(ran.taken == ["reports/tally.sarif", "reports"], || format!("{:?}", ran.taken))?;
    let (log, validators) = (clone.read("reports/tally.sarif")?, Validators::open()?);
    let wrong = validators.sarif(&log)? + &validators.junit(&clone.read("reports/tally.xml")?)?;
    ensure(wrong.is_empty(), || wrong.clone())?;
    let log = serde_json::from_slice(&log)?;
    ensure(takes::sarif(&log).is_empty(), || takes::sarif(&log).join("\n"))?;
    let results = items(&log["runs"][0]["results"]);
    let leak = results.iter().find(|result| result["ruleId"] == "leak").ok_or_else(|| ran.said.clone())?;
    let place = &leak["locations"][0]["physicalLocation"];
    let right = place["artifactLocation"] == json!({ "uri": "tally.c", "uriBaseId": "%SRCROOT%" })
        && leak["baselineState"] == "unchanged"
        && log["runs"][0]["automationDetails"]["id"] == "guardrail/tally/6.1/";
    ensure(right, || format!("{log:#}"))?;
    let line = place["region"]["startLine"].as_u64().map(|line| line as usize);
    let expected = lines(&clone.read("tally.c")?, "kmalloc(");
    ensure(expected.first().copied() == line, || format!("{expected:?}, not {place}"))
}

fn gitlab() -> Result<(), Failed> {
    let clone = Clone::new()?;
    clone.edit("tally.c", "digit >= '0' + TALLY_SLOTS", "digit > '0' + TALLY_SLOTS")?;
    let ran = clone.gitlab()?.with(1)?;
    let xml = clone.read("reports/tally.xml")?;
    let wrong = Validators::open()?.junit(&xml)?;
    ensure(wrong.is_empty(), || wrong.clone())?;
    let issues = clone.json("reports/tally.json")?;
    ensure(takes::code_quality(&issues).is_empty(), || takes::code_quality(&issues).join("\n"))?;
    let fault = items(&issues).iter().find(|issue| issue["check_name"] == "out-of-bounds");
    let fault = fault.ok_or_else(|| format!("{}\n{issues:#}", ran.said))?;
    let line = lines(&clone.read("tally.c")?, "tally_counts[digit]++");
    let right = fault["location"] == json!({ "path": "tally.c", "lines": { "begin": line[0] } })
        && fault["severity"] == "critical";
    ensure(right, || format!("{fault:#}"))?;
    let text = String::from_utf8_lossy(&xml).into_owned();
    let id = fault["fingerprint"].as_str().unwrap_or("?");
    ensure(
        text.contains(&format!("out-of-bounds in tally_add ({id})"))
            && text.contains("<skipped message=\"known\"/>"),
        || text.clone(),
    )?;
    ensure(ran.taken == ["reports/tally.json", "reports/tally.xml"], || format!("{:?}", ran.taken))
}

fn lava() -> Result<(), Failed> {
    let clone = Clone::new()?;
    let ran = clone.lava()?.with(0)?;
    let got = clone.cases()?;
    let read = Validators::open()?.ktap(&clone.read("reports/tally.ktap")?)?;
    let tests = items(&read["tests"][0]["tests"]);
    let right =
        read["errors"] == 0 && read["tests"][0]["status"] == "SUCCESS" && got.len() == tests.len() + 1;
    ensure(right, || format!("{read:#}\n{got:?}\n{}", ran.said))?;
    let has = |name: &str, result: &str| got.iter().any(|case| case.0.starts_with(name) && case.1 == result);
    let right = has("get-guardrail", "pass")
        && has("tally-run", "pass")
        && has("tally.dmcheck-leak-in-tally_now", "skip");
    ensure(right && !got.iter().any(|case| case.1 == "fail"), || format!("{got:?}"))
}
