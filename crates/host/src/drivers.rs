//! The drivers of a run: their modules, their debug information, the workload's variables, and how the guest
//! ran.

use crate::error::HostError;
use guardrail_report::{Run, Step};
use guardrail_vm::modules::ModuleFile;
use guardrail_vm::prepare::Prepared;
use guardrail_vm::run::{Finished, Outcome};
use guardrail_vm::settings::Parameter;
use std::time::Duration;

/// All drivers of a run, in the order of their turns.
pub fn drivers(prepared: &Prepared) -> impl Iterator<Item = &ModuleFile> {
    std::iter::once(&prepared.plan.driver).chain(prepared.more.iter().map(|companion| &companion.plan.driver))
}

/// The modules that are watched: the drivers, and those that are watched with them.
pub fn watched(prepared: &Prepared) -> impl Iterator<Item = &ModuleFile> {
    let with = prepared.with.iter().filter_map(|name| prepared.loaded().find(|module| module.name == *name));
    drivers(prepared).chain(with)
}

/// The other modules that the guest loads, one or more times.
pub fn others(prepared: &Prepared) -> impl Iterator<Item = &ModuleFile> {
    prepared.loaded().filter(|module| !prepared.with.contains(&module.name))
}

/// The names of a run's drivers, separated by commas.
pub fn names(prepared: &Prepared) -> String {
    drivers(prepared).map(|driver| driver.name.as_str()).collect::<Vec<_>>().join(",")
}

/// The workload's variables that the user sets, from `NAME=VALUE`.
pub fn variables(given: &[String]) -> Result<Vec<(String, String)>, HostError> {
    let pair = |text: &String| {
        let (name, value) = text
            .split_once('=')
            .ok_or_else(|| HostError::Usage(format!("--set wants NAME=VALUE, not '{text}'")))?;
        Ok((name.to_owned(), value.to_owned()))
    };
    given.iter().map(pair).collect()
}

/// Module parameters that the user sets, from `NAME=VALUE` or `MODULE.NAME=VALUE`.
pub fn parameters(given: &[String]) -> Result<Vec<Parameter>, HostError> {
    given.iter().map(|text| Ok(text.parse::<Parameter>()?)).collect()
}

/// Refuses what the user sets and nothing reads, and gives the modules their parameters.
pub fn set(
    prepared: &mut Prepared,
    variables: &[(String, String)],
    parameters: &[Parameter],
) -> Result<(), HostError> {
    prepared.refuse_unread(variables.iter().map(|(name, _)| name.as_str()))?;
    Ok(prepared.set_parameters(parameters)?)
}

/// Why no device was bound, and which device to name instead.
pub fn no_device(prepared: &Prepared) -> String {
    let name = &prepared.plan.driver.name;
    let known = &prepared.listed;
    let never = known.as_ref().and_then(|entry| entry.not.as_ref()).filter(|not| not.kernels.is_empty());
    if let Some(not) = never {
        return format!("{name} loaded but bound no device: {}", not.why);
    }
    let devices: Vec<&str> =
        known.iter().flat_map(|entry| &entry.devices).map(|device| device.name.as_str()).collect();
    let tried =
        prepared.choice.device.as_ref().map_or(String::new(), |device| format!(" (tried {})", device.name));
    match devices.is_empty() {
        true => format!("{name} loaded but bound no device{tried}; name one that it serves with --device"),
        false => {
            format!("{name} loaded but bound no device{tried}; it is known to bind {}", devices.join(", "))
        }
    }
}

/// The report's description of how a guest ran.
pub fn ran(finished: &Finished) -> Run {
    let step = |(name, time): (&str, Duration)| Step { name: name.to_owned(), seconds: seconds(time) };
    let detail = match &finished.outcome {
        Outcome::Completed => None,
        Outcome::GuestPanic { text } => Some(text.clone()),
        other => Some(other.to_string()),
    };
    Run {
        outcome: finished.outcome.word().to_owned(),
        detail,
        guest_seconds: seconds(finished.wall),
        boot_seconds: finished.boot().map(seconds),
        steps: finished.steps().into_iter().map(step).collect(),
        ..Run::default()
    }
}

/// A time in seconds, rounded to milliseconds.
pub fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1000.0).round() / 1000.0
}

/// Identifies a module file, to check whether it is the one that was recorded (FNV-1a; no defense against
/// forgery).
pub fn digest(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}
