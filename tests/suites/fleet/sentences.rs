//! What goes wrong is one sentence.

use crate::servers::Nats;
use guardrail_tests::{ensure, guardrail};
use libtest_mimic::{Failed, Trial};
use std::fs;

/// A job that costs nothing.
const JOB: &str = "{\"version\":1,\"kind\":\"rehearsal\",\"milliseconds\":0}\n";

pub fn trials() -> Vec<Trial> {
    vec![
        Trial::test("a spec that is not known is refused", specs),
        Trial::test("a store that cannot be written to is refused", stores),
        Trial::test("a server that is away or refuses is one sentence", servers),
        Trial::test("a job that fails three times is set aside", failing),
        Trial::test("a result that does not match is computed anew", mismatch),
    ]
}

/// Runs `fleet run` with this file of jobs, and expects a status and words on standard error.
fn refused(jobs: &str, more: &[&str], status: i32, words: &str) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(path("jobs"), jobs)?;
    let (jobs, store) = (path("jobs"), path("store"));
    let store: &[&str] = if more.contains(&"--store") { &[] } else { &["--store", &store] };
    let ran = guardrail(&[&["fleet", "run", &jobs][..], store, more].concat());
    let errors: Vec<&str> = ran.stderr.lines().filter(|line| line.starts_with("error: ")).collect();
    let fits = ran.status == status && errors.len() == 1 && errors[0].contains(words);
    ensure(fits, || format!("expected {status} and '{words}', got {}", ran.said()))
}

fn specs() -> Result<(), Failed> {
    let unknown = JOB.replace("milliseconds", "miliseconds");
    refused(&unknown, &[], 2, "line 1: unknown field `miliseconds`")?;
    refused(&JOB.replace("\":1", "\":2"), &[], 2, "version 2 is newer than this program")?;
    refused("", &[], 2, "has no job")?;
    refused(JOB, &["--engine", "condor"], 2, "there are local, slurm and nats://HOST:PORT")?;
    refused(JOB, &["--workers", "0"], 2, "--workers 0 leaves the engine 'local' without workers")?;
    refused(JOB, &["--engine", "nats://a:b"], 2, "is no address of a NATS server")
}

fn stores() -> Result<(), Failed> {
    // A file system where nobody can make folders, also not root.
    refused(JOB, &["--store", "/proc/guardrail"], 3, "cannot create /proc/guardrail/results")?;
    let ran = guardrail(&["fleet", "status", "--store", "/proc"]);
    ensure(ran.status == 2 && ran.stderr.contains("/proc is no store of results"), || ran.said())
}

fn servers() -> Result<(), Failed> {
    refused(JOB, &["--engine", "nats://127.0.0.1:1"], 3, "no NATS server answers at nats://127.0.0.1:1: ")?;
    let server = Nats::with(&[])?;
    refused(JOB, &["--engine", &server.address()], 3, "which need nats-server -js")?;
    let server = Nats::with(&["-js", "--user", "a", "--pass", "b"])?;
    refused(JOB, &["--engine", &server.address()], 3, "refuses this user; set GUARDRAIL_NATS_CREDENTIALS")
}

fn failing() -> Result<(), Failed> {
    let server = Nats::start()?;
    for engine in ["local", &server.address()] {
        let folder = tempfile::tempdir()?;
        let path = |name: &str| folder.path().join(name).display().to_string();
        let fails = "{\"version\":1,\"kind\":\"rehearsal\",\"milliseconds\":1,\"seed\":7,\"fails\":true}\n";
        fs::write(path("jobs"), format!("{JOB}{fails}"))?;
        let words =
            ["fleet", "run", &path("jobs"), "--store", &path("store"), "--engine", engine, "--workers", "2"];
        let ran = guardrail(&words).with(&[3])?;
        let words = "1 of 2 jobs failed and are set aside";
        ensure(ran.stderr.contains(words), || ran.said())?;
        let row = "rehearsal 7 of 1 ms         rehearsal 7 was asked to fail";
        ensure(ran.stdout.contains(row), || ran.said())?;
        let shown = guardrail(&["fleet", "status", "--store", &path("store")]).with(&[0])?;
        ensure(shown.stdout.contains("set aside: rehearsal 7"), || shown.said())?;
    }
    Ok(())
}

fn mismatch() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(path("job"), JOB.replace("\":0", "\":1"))?;
    let job = |more: &[&str]| guardrail(&[&["job", &path("job")][..], more].concat()).with(&[0]);
    let first = job(&["--store", &path("store")])?.stdout;
    let key = job(&["--key"])?.stdout.trim().to_owned();
    let file = folder.path().join("store/results").join(&key[..2]).join(&key);
    let forged = fs::read_to_string(&file)?.replace("\"rehearsal\":0", "\"rehearsal\":1");
    fs::write(&file, forged)?;
    let again = job(&["--store", &path("store")])?.stdout;
    ensure(again == first, || format!("{again} instead of {first}"))?;
    let refused = fs::read_dir(folder.path().join("store/refused"))?.count();
    ensure(refused == 1, || format!("{refused} results were refused"))
}
