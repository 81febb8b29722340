//! A VM that stays alive between commands.

use crate::{Checked, guardrail, vm_name};
use libtest_mimic::Failed;
use serde_json::Value;

/// A VM of `guardrail vm`; it is stopped when this value is dropped.
pub struct Lab(pub String);

impl Lab {
    /// Starts a VM with these options of `vm start`.
    pub fn start(what: &str, options: &[&str]) -> Result<Lab, Failed> {
        let lab = Lab(vm_name(what));
        lab.ask("start", options)?;
        Ok(lab)
    }

    /// Starts a VM whose driver runs without instrumentation.
    pub fn with_driver(what: &str, kernel: &str, driver: &str, more: &[&str]) -> Result<Lab, Failed> {
        let common = ["--client", "null", "--detached", "--kernel", kernel, "--driver", driver];
        Lab::start(what, &[&common, more].concat())
    }

    /// The result of a subcommand of `vm`, which must succeed.
    pub fn ask(&self, what: &str, arguments: &[&str]) -> Result<Checked, Failed> {
        guardrail(&[&["vm", what, &self.0], arguments].concat()).with(&[0])
    }

    /// What a script prints in the guest. It must succeed.
    pub fn exec(&self, script: &str) -> Result<String, Failed> {
        Ok(self.ask("exec", &["--", script])?.stdout)
    }

    /// What a script prints in the guest, whatever its exit status is.
    pub fn prints(&self, script: &str) -> String {
        guardrail(&["vm", "exec", &self.0, "--", script]).stdout
    }

    /// Runs scripts one after the other; a failure names the script.
    pub fn each(&self, options: &[&str], scripts: &[(&str, &str)]) -> Result<(), Failed> {
        for (what, script) in scripts {
            let result = guardrail(&[&["vm", "exec", &self.0], options, &["--", script]].concat());
            crate::ensure(result.status == 0, || format!("{what}: {}", result.said()))?;
        }
        Ok(())
    }

    /// The results of the clients until now.
    pub fn results(&self) -> Result<Value, Failed> {
        Ok(self.ask("results", &["--format", "json"])?.report()?.clone())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        guardrail(&["vm", "stop", &self.0]);
    }
}
