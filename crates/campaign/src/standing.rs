//! What a guarded driver needs in its guest: the runtime, the guarded modules that share its domain, and the program
//! that loads it again.

use guardrail_guard::Policy;
use guardrail_vm::modules::{Facts, ModuleFile};
use guardrail_vm::prepare::Prepared;

/// The runtime's name, as the kernel shows it.
pub const RUNTIME: &str = "guardrail";
/// Loads and unloads the driver and its dependencies in the guest, for the recovery of a guarded driver.
const LOADER: &str = "#!/bin/sh
[ \"$1\" != -r ] || exec rmmod \"$2\"
for file in /guardrail/modules/*-\"$1\".ko; do
    [ ! -e \"$file\" ] || exec insmod \"$file\"
done
. /guardrail/config
exec insmod /guardrail/original.ko $PARAMETERS
";

/// What a guarded driver needs in its guest.
pub struct Standing<'a> {
    /// The bytes of `guardrail.ko`.
    pub runtime: &'a [u8],
    /// The runtime's policy at a violation.
    pub policy: Policy,
    /// The guarded driver that replaces a killed one.
    pub original: &'a [u8],
    /// Modules that the driver needs, guarded as well.
    pub needed: &'a [ModuleFile],
}

/// What the guest gets besides its modules.
pub struct Extras {
    /// Variables of the workload.
    pub variables: Vec<(String, String)>,
    /// Files for the guest's folder `/guardrail`.
    pub files: Vec<(String, Vec<u8>)>,
    /// The word of the kernel's command line with which its console has what the runtime reports.
    pub loglevel: &'static str,
}

impl Standing<'_> {
    /// Puts the guarded modules in place of the stock ones, and the runtime before all; the driver itself stays.
    pub fn put(&self, prepared: &mut Prepared) -> Extras {
        for module in prepared.plan.before.iter_mut().chain(&mut prepared.also) {
            if let Some(guarded) = self.needed.iter().find(|guarded| guarded.name == module.name) {
                module.bytes.clone_from(&guarded.bytes);
            }
        }
        let (name, path) = (RUNTIME.to_owned(), format!("{RUNTIME}.ko").into());
        prepared
            .plan
            .before
            .insert(0, ModuleFile { name, path, bytes: self.runtime.to_vec(), facts: Facts::default() });
        let mut parameters = format!("policy={}", self.policy.word());
        let (mut variables, mut files, mut loglevel) = (Vec::new(), Vec::new(), "loglevel=5");
        if self.policy == Policy::Recover {
            parameters += " loader=/guardrail/loader";
            variables.push(("RECOVERS".to_owned(), "1".to_owned()));
            files.push(("loader".to_owned(), LOADER.as_bytes().to_vec()));
            files.push(("original.ko".to_owned(), self.original.to_vec()));
            // The kernel prints the result of a recovery at a lower level than warnings.
            loglevel = "loglevel=7";
        }
        variables.push((format!("PARAMETERS_{RUNTIME}"), parameters));
        Extras { variables, files, loglevel }
    }
}
