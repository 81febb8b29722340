//! The specification of a job: what is to be computed, as a person or a program writes it.
//!
//! Fields that are not known and versions that are newer are refused: a worker that leaves out half of a job would store a wrong
//! result under its key.

use guardrail_host::HostError;
use guardrail_report::text::clean;
use guardrail_vm::kernels;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The version of the format.
pub const VERSION: u64 = 1;
/// The most milliseconds of a rehearsal: an hour.
const LONGEST_REHEARSAL: u64 = 3_600_000;
/// The most seconds of a check's guest: a day.
const LONGEST_CHECK: u64 = 86_400;
/// The most characters of a name or a path.
const LONGEST_NAME: usize = 4096;
/// The modes of a check.
const MODES: [&str; 3] = ["permissive", "triage", "stringent"];

/// What is to be computed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub enum Spec {
    /// One driver in one guest, with checkers.
    Check(Check),
    /// Waits, and returns a digest.
    Rehearsal(Rehearsal),
}

/// A run of `guardrail check`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// The driver: a module of the kernel, the path of a `.ko`, or `zoo/NAME`.
    pub driver: String,
    /// The kernel, as `guardrail check --kernel` takes it.
    #[serde(default = "usual_kernel")]
    pub kernel: String,
    /// The QEMU device; the driver's usual one where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The workload, a name or the path of a script; that of the driver's class where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    /// Variables of the workload; one that the workload does not read is left out.
    #[serde(default)]
    pub variables: BTreeMap<String, String>,
    /// The variable `SEED` of the workload; absent where nothing depends on chance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// The checkers by name; `all` is all.
    #[serde(default = "usual_checkers")]
    pub checkers: Vec<String>,
    /// What happens at a finding: `permissive`, `triage` or `stringent`.
    #[serde(default = "usual_mode")]
    pub mode: String,
    /// The number of the guest's CPUs, 1 to 4.
    #[serde(default = "usual_cpus")]
    pub smp: u8,
    /// The longest time of the guest, in seconds.
    #[serde(default = "usual_timeout")]
    pub timeout: u64,
}

/// A job that costs nothing but time, for tests and to measure a fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rehearsal {
    /// How long it waits.
    pub milliseconds: u64,
    /// Tells one rehearsal from another.
    #[serde(default)]
    pub seed: u64,
    /// Fails instead of returning a digest.
    #[serde(default, skip_serializing_if = "is_false")]
    pub fails: bool,
}

fn usual_kernel() -> String {
    kernels::DEFAULT.to_owned()
}

fn usual_checkers() -> Vec<String> {
    vec!["all".to_owned()]
}

fn usual_mode() -> String {
    MODES[0].to_owned()
}

fn usual_cpus() -> u8 {
    2
}

fn usual_timeout() -> u64 {
    600
}

fn is_false(value: &bool) -> bool {
    !value
}

impl Spec {
    /// Reads a specification in TOML or JSON; `name` is that of its file, for messages.
    pub fn read(name: &str, text: &str) -> Result<Spec, HostError> {
        let refuse = |why: String| HostError::Usage(format!("{name}: {why}"));
        let value: Value = match text.trim_start().starts_with('{') {
            true => serde_json::from_str(text).map_err(|error| refuse(error.to_string()))?,
            false => toml::from_str(text)
                .map_err(|error| refuse(error.message().lines().next().unwrap_or_default().to_owned()))?,
        };
        Spec::try_from(value).map_err(refuse)
    }

    /// A name for tables.
    pub fn name(&self) -> String {
        match self {
            Spec::Check(check) => clean(&format!("{} on {}", check.driver, check.kernel)),
            Spec::Rehearsal(rehearsal) => {
                format!("rehearsal {} of {} ms", rehearsal.seed, rehearsal.milliseconds)
            }
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Spec::Check(_) => "check",
            Spec::Rehearsal(_) => "rehearsal",
        }
    }
}

impl TryFrom<Value> for Spec {
    type Error = String;

    fn try_from(value: Value) -> Result<Spec, String> {
        let Value::Object(mut fields) = value else {
            return Err("a job is an object with 'version' and 'kind'".to_owned());
        };
        let version = fields.remove("version").ok_or("the field 'version' is missing; write version 1")?;
        match version.as_u64() {
            Some(VERSION) => {}
            Some(newer) if newer > VERSION => {
                return Err(format!(
                    "version {newer} is newer than this program, which knows version {VERSION}; update Guardrail"
                ));
            }
            _ => return Err(format!("there is no version {version}; this program knows version {VERSION}")),
        }
        let kind = fields.remove("kind").ok_or("the field 'kind' is missing; write check or rehearsal")?;
        match kind.as_str() {
            Some("check") => of_fields::<Check>(fields)?.valid().map(Spec::Check),
            Some("rehearsal") => of_fields::<Rehearsal>(fields)?.valid().map(Spec::Rehearsal),
            _ => Err(format!("there is no kind of job {kind}; there are check and rehearsal")),
        }
    }
}

impl From<Spec> for Value {
    fn from(spec: Spec) -> Value {
        let kind = spec.kind();
        let fields = match spec {
            Spec::Check(check) => serde_json::to_value(check),
            Spec::Rehearsal(rehearsal) => serde_json::to_value(rehearsal),
        };
        let mut fields = match fields {
            Ok(Value::Object(fields)) => fields,
            // Structs of plain fields become objects.
            _ => Map::new(),
        };
        fields.insert("version".to_owned(), VERSION.into());
        fields.insert("kind".to_owned(), kind.into());
        Value::Object(fields)
    }
}

fn of_fields<T: for<'a> Deserialize<'a>>(fields: Map<String, Value>) -> Result<T, String> {
    serde_json::from_value(Value::Object(fields)).map_err(|error| error.to_string())
}

impl Check {
    fn valid(self) -> Result<Check, String> {
        let names = [Some(&self.driver), Some(&self.kernel), self.device.as_ref(), self.workload.as_ref()];
        let words: Vec<&String> =
            names.into_iter().flatten().chain(&self.checkers).chain(self.variables.keys()).collect();
        let bad = |word: &str| {
            word.is_empty() || word.starts_with('-') || word.len() > LONGEST_NAME || word.contains('\0')
        };
        if let Some(word) = words.into_iter().find(|word| bad(word)) {
            let word: String = word.chars().take(40).collect();
            return Err(format!(
                "'{word}' is no name of a driver, kernel, device, workload, checker or variable"
            ));
        }
        if self.variables.values().any(|value| value.len() > LONGEST_NAME || value.contains('\0')) {
            return Err("a value of 'variables' is too long, or has a zero byte".to_owned());
        }
        if self.checkers.is_empty() || self.checkers.iter().any(|name| name.contains(',')) {
            return Err("'checkers' has to be a list of names, such as [\"all\"]".to_owned());
        }
        if !MODES.contains(&self.mode.as_str()) {
            return Err(format!("there is no mode '{}'; there are {}", self.mode, MODES.join(", ")));
        }
        if !(1..=4).contains(&self.smp) {
            return Err(format!("'smp' is {}; it has to be 1 to 4", self.smp));
        }
        if !(1..=LONGEST_CHECK).contains(&self.timeout) {
            return Err(format!("'timeout' is {} s; it has to be 1 to {LONGEST_CHECK}", self.timeout));
        }
        Ok(self)
    }
}

impl Rehearsal {
    fn valid(self) -> Result<Rehearsal, String> {
        match self.milliseconds {
            0..=LONGEST_REHEARSAL => Ok(self),
            more => Err(format!("'milliseconds' is {more}; it has to be at most {LONGEST_REHEARSAL}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        let error = Spec::read("job.toml", text).unwrap_err();
        assert_eq!(error.status() as u8, 2);
        error.to_string()
    }

    #[test]
    fn toml_and_json_are_the_same_job() {
        let toml = "version = 1\nkind = \"check\"\ndriver = \"e1000\"\n[variables]\nDOWNLOAD_MB = \"1\"\n";
        let json = r#"{"kind": "check", "version": 1, "driver": "e1000", "kernel": "6.1",
                       "variables": {"DOWNLOAD_MB": "1"}, "checkers": ["all"], "smp": 2}"#;
        let (one, other) = (Spec::read("a", toml).unwrap(), Spec::read("b", json).unwrap());
        assert_eq!(one, other);
        let again = serde_json::to_string(&one).unwrap();
        assert_eq!(serde_json::from_str::<Spec>(&again).unwrap(), one);
    }

    #[test]
    fn what_is_not_known_is_refused_in_a_sentence() {
        assert!(
            refused("version = 1\nkind = \"check\"\ndrivr = \"e1000\"\n").contains("unknown field `drivr`")
        );
        assert_eq!(
            refused("version = 2\nkind = \"check\"\ndriver = \"e1000\"\n"),
            "job.toml: version 2 is newer than this program, which knows version 1; update Guardrail"
        );
        assert!(refused("kind = \"check\"\n").contains("'version' is missing"));
        assert!(refused("version = 1\n").contains("'kind' is missing"));
        assert!(refused("version = 1\nkind = \"sweep\"\n").contains("no kind of job \"sweep\""));
        assert!(refused("version = -1\nkind = \"check\"\n").contains("no version -1"));
        assert!(refused("[1]").starts_with("job.toml: "));
        assert!(refused("{").starts_with("job.toml: EOF"));
        assert!(refused("version = 1\nkind = \"rehearsal\"\nmilliseconds = 3600001\n").contains("at most"));
    }

    #[test]
    fn names_cannot_become_options() {
        for field in
            ["driver = \"--on-finding=reboot\"", "driver = \"a\"\nworkload = \"-x\"", "driver = \"\""]
        {
            let text = format!("version = 1\nkind = \"check\"\n{field}\n");
            assert!(refused(&text).contains("is no name"), "{field}");
        }
        let list = "version = 1\nkind = \"check\"\ndriver = \"a\"\ncheckers = [\"a,b\"]\n";
        assert!(refused(list).contains("'checkers'"));
        assert!(refused("version = 1\nkind = \"check\"\ndriver = \"a\"\nsmp = 9\n").contains("'smp' is 9"));
        assert!(refused("version = 1\nkind = \"check\"\ndriver = \"a\"\nmode = \"x\"\n").contains("no mode"));
    }
}
