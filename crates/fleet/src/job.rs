//! A job: a specification with the digests of all that goes in, and the key that follows from both.

use crate::build::stamp;
use crate::canonical::{canonical, digest};
use crate::spec::{Check, Spec};
use guardrail_host::{Host, HostError, files, folders, from_source, zoo};
use guardrail_vm::kernels;
use guardrail_vm::modules::Modules;
use guardrail_vm::packages::Packages;
use guardrail_vm::prepare::own_workload;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Name and version of what a key is a digest of.
const KEY_SCHEMA: &str = "guardrail-job/2";
/// The most bytes of one input that are read.
const MOST_BYTES: u64 = 512 << 20;

/// The address of a job and of its result: a SHA-256, as 64 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Key(String);

impl Key {
    /// The digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Key {
    type Err = String;

    fn from_str(text: &str) -> Result<Key, String> {
        let digit = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
        match text.len() == 64 && text.chars().all(digit) {
            true => Ok(Key(text.to_owned())),
            false => Err("a key has 64 hexadecimal digits".to_owned()),
        }
    }
}

impl TryFrom<String> for Key {
    type Error = String;

    fn try_from(text: String) -> Result<Key, String> {
        text.parse()
    }
}

impl From<Key> for String {
    fn from(key: Key) -> String {
        key.0
    }
}

/// A job that any machine can compute, and check that it has the same inputs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// What is to be computed.
    pub spec: Spec,
    /// Digests of the files that go in, by what they are: `driver` with the modules that it needs, `kernel`, `workload`.
    pub inputs: BTreeMap<String, String>,
    /// The build of Guardrail ([`identity`](crate::build::identity)).
    pub build: String,
}

impl Job {
    /// The job's address.
    pub fn key(&self) -> Key {
        // A job has only text and whole numbers, so that its JSON has one form.
        let value = serde_json::to_value(self).unwrap_or(Value::Null);
        Key(digest(&[KEY_SCHEMA.as_bytes(), canonical(&value).as_bytes()]))
    }
}

/// Finds what goes into jobs on this machine. It keeps what it has read, since jobs share kernels.
pub struct Resolver<'a> {
    host: &'a Host,
    build: String,
    kernels: BTreeMap<String, KnownKernel>,
}

/// A kernel that was read.
struct KnownKernel {
    vmlinuz: PathBuf,
    /// The state of the image's file when it was read.
    stamp: String,
    /// The digest of the image.
    image: String,
    modules: Modules,
}

impl<'a> Resolver<'a> {
    /// A resolver for jobs of a build of Guardrail.
    pub fn new(host: &'a Host, build: &str) -> Resolver<'a> {
        Resolver { host, build: build.to_owned(), kernels: BTreeMap::new() }
    }

    /// The build of Guardrail whose jobs these are.
    pub fn build(&self) -> &str {
        &self.build
    }

    /// The job of a specification, with what this machine has. A kernel is fetched where the cache has none.
    pub fn job(&mut self, spec: Spec) -> Result<Job, HostError> {
        let (spec, inputs) = match spec {
            Spec::Check(check) => {
                let check = located(check)?;
                let inputs = self.inputs(&check)?;
                (Spec::Check(check), inputs)
            }
            rehearsal @ Spec::Rehearsal(_) => (rehearsal, BTreeMap::new()),
        };
        Ok(Job { spec, inputs, build: self.build.clone() })
    }

    /// Refuses a job that this machine cannot compute as it was meant: another build, or other files.
    pub fn refuse_other(&mut self, job: &Job) -> Result<(), HostError> {
        if job.build != self.build {
            return Err(HostError::Usage(format!(
                "the job is for guardrail {}, and this is {}; use the same build on all machines",
                job.build, self.build
            )));
        }
        let own = self.job(job.spec.clone())?;
        // What a job leaves out is no better than what differs: it may be anything.
        let differs = |name: &&String| own.inputs.get(*name) != job.inputs.get(*name);
        match own.inputs.keys().chain(job.inputs.keys()).find(differs) {
            Some(name) => Err(HostError::Usage(format!(
                "the {name} of {} is another one on this machine; copy it from the machine that made the job",
                job.spec.name()
            ))),
            None => Ok(()),
        }
    }

    fn inputs(&mut self, check: &Check) -> Result<BTreeMap<String, String>, HostError> {
        let mut inputs = BTreeMap::new();
        let KnownKernel { image, modules, .. } = self.kernel(&check.kernel)?;
        inputs.insert("kernel".to_owned(), image.clone());
        let driver = match zoo::named(&check.driver) {
            Some(name) => match zoo::sources(name) {
                Some(sources) => format!("{sources:016x}"),
                None => return Err(HostError::Usage(format!("the zoo has no driver '{name}'"))),
            },
            None if from_source::is_source(&check.driver) => from_source::state(&check.driver)?,
            // A file may need modules beside it, as one by name needs those of the kernel.
            None => {
                let plan = modules.plan(&check.driver)?;
                let files = plan.before.iter().chain([&plan.driver]);
                let digests: Vec<String> = files.map(|module| digest(&[&module.bytes])).collect();
                digest(&digests.iter().map(String::as_bytes).collect::<Vec<_>>())
            }
        };
        inputs.insert("driver".to_owned(), driver);
        if let Some(script) = script(check) {
            inputs.insert("workload".to_owned(), of_file(&script)?);
        }
        Ok(inputs)
    }

    /// A kernel's image and modules. One that was built again in its place is read again.
    fn kernel(&mut self, name: &str) -> Result<&KnownKernel, HostError> {
        let same = |known: &KnownKernel| stamp(&known.vmlinuz).is_ok_and(|stamp| stamp == known.stamp);
        if !self.kernels.get(name).is_some_and(same) {
            self.host.progress.step(&format!("kernel {name}"));
            let found = kernels::find(&Packages::new(&self.host.cache), name)?;
            let stamp = stamp(&found.vmlinuz)?;
            let image = digest(&[&bytes(&found.vmlinuz)?]);
            let modules = Modules::of(&found, &folders::parser()?)?;
            let known = KnownKernel { vmlinuz: found.vmlinuz, stamp, image, modules };
            self.kernels.insert(name.to_owned(), known);
        }
        self.kernels.get(name).ok_or_else(|| HostError::Run(format!("kernel {name} is not there")))
    }
}

/// A check with absolute paths: another process has another current folder.
fn located(check: Check) -> Result<Check, HostError> {
    let absolute = |name: &String| -> Result<String, HostError> {
        let is_path = name.contains('/') && zoo::named(name).is_none();
        let plain = || name.contains('.') && Path::new(name).exists();
        match is_path || plain() {
            true => Ok(folders::absolute(Path::new(name))?.display().to_string()),
            false => Ok(name.clone()),
        }
    };
    Ok(Check {
        driver: absolute(&check.driver)?,
        kernel: absolute(&check.kernel)?,
        workload: check.workload.as_ref().map(absolute).transpose()?,
        ..check
    })
}

/// The script that exercises the driver: the one that the job names, or the one beside the module's file.
fn script(check: &Check) -> Option<PathBuf> {
    match &check.workload {
        Some(name) => name.contains('/').then(|| PathBuf::from(name)),
        None if zoo::named(&check.driver).is_some() || from_source::is_source(&check.driver) => None,
        None => own_workload(Path::new(&check.driver)).filter(|_| check.driver.contains('/')),
    }
}

/// The digest of a file.
fn of_file(path: &Path) -> Result<String, HostError> {
    Ok(digest(&[&bytes(path)?]))
}

fn bytes(path: &Path) -> Result<Vec<u8>, HostError> {
    // To open a pipe would wait for somebody who writes.
    if path.metadata().is_ok_and(|of| !of.is_file()) {
        return Err(HostError::Usage(format!("{} is no file", path.display())));
    }
    files::input(path, MOST_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Rehearsal;
    use std::fs;

    pub fn rehearsal(seed: u64) -> Job {
        let spec = Spec::Rehearsal(Rehearsal { milliseconds: 1, seed, fails: false });
        Job { spec, inputs: BTreeMap::new(), build: "0".to_owned() }
    }

    #[test]
    fn all_that_goes_in_is_in_the_key() {
        let job = rehearsal(1);
        assert_eq!(job.key(), rehearsal(1).key());
        let with = |name: &str, value: &str| Job {
            inputs: BTreeMap::from([(name.to_owned(), value.to_owned())]),
            ..job.clone()
        };
        let others = [
            rehearsal(2),
            Job { build: "1".to_owned(), ..job.clone() },
            with("driver", "a"),
            with("driver", "b"),
            with("kernel", "a"),
        ];
        let mut keys: Vec<Key> = others.iter().chain([&job]).map(Job::key).collect();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), 6);
        let again: Job = serde_json::from_str(&serde_json::to_string(&job).unwrap()).unwrap();
        assert_eq!(again.key(), job.key());
    }

    #[test]
    fn a_key_is_no_path() {
        assert!("../etc/passwd".parse::<Key>().is_err());
        assert!("A".repeat(64).parse::<Key>().is_err());
        assert!(serde_json::from_str::<Key>(&format!("\"{}\"", "0".repeat(64))).is_ok());
    }

    #[test]
    fn a_folder_is_known_by_names_and_contents() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("a")).unwrap();
        fs::write(folder.path().join("a/b.c"), "1").unwrap();
        std::os::unix::fs::symlink("/", folder.path().join("loop")).unwrap();
        fs::write(folder.path().join("Kbuild"), "obj-m += a/b.o\n").unwrap();
        let state = || from_source::state(&folder.path().display().to_string());
        let first = state().unwrap();
        fs::write(folder.path().join("a/b.c"), "2").unwrap();
        let second = state().unwrap();
        fs::rename(folder.path().join("a/b.c"), folder.path().join("a/c.c")).unwrap();
        let third = state().unwrap();
        assert!(first != second && second != third);
        assert!(of_file(Path::new("/nonexistent")).unwrap_err().to_string().starts_with("cannot read"));
    }

    #[test]
    fn the_script_beside_a_module_goes_in() {
        let folder = tempfile::tempdir().unwrap();
        let text = |more: &str| {
            let driver = folder.path().join("a.ko").display().to_string();
            format!("{{\"version\":1,\"kind\":\"check\",\"driver\":\"{driver}\"{more}}}")
        };
        let script = |more: &str| match Spec::read("x", &text(more)).unwrap() {
            Spec::Check(check) => script(&check),
            Spec::Rehearsal(_) => unreachable!(),
        };
        assert_eq!(script(""), None);
        let beside = folder.path().join("workload.sh");
        fs::write(&beside, "").unwrap();
        assert_eq!(script(""), Some(beside));
        assert_eq!(script(",\"workload\":\"network\""), None);
        assert_eq!(script(",\"workload\":\"/b.sh\""), Some(PathBuf::from("/b.sh")));
    }

    #[test]
    fn a_job_of_another_build_is_refused() {
        let host = Host::embedded().unwrap();
        let mut resolver = Resolver::new(&host, "2");
        let error = resolver.refuse_other(&rehearsal(1)).unwrap_err().to_string();
        assert_eq!(error, "the job is for guardrail 0, and this is 2; use the same build on all machines");
    }

    #[test]
    fn what_a_job_leaves_out_is_refused_and_a_pipe_is_not_waited_for() {
        let host = Host::embedded().unwrap();
        let mut resolver = Resolver::new(&host, "0");
        let more = Job { inputs: BTreeMap::from([("driver".to_owned(), "1".to_owned())]), ..rehearsal(1) };
        let error = resolver.refuse_other(&more).unwrap_err().to_string();
        assert!(error.contains("the driver of rehearsal 1"), "{error}");
        assert!(bytes(Path::new("/dev/zero")).unwrap_err().to_string().contains("is no file"));
    }
}
