//! What a run would do, for `check --dry-run`.

use crate::run::Ready;
use guardrail_host::drivers::{drivers, others, watched};
use guardrail_vm::modules::ModuleFile;
use guardrail_vm::run::words_of_qemu;
use std::fmt::Write;

impl Ready<'_> {
    /// One line for each thing that was chosen, and QEMU's command line.
    pub fn describe(&self) -> String {
        let (plan, prepared) = (self.plan, &self.prepared);
        let mut text = String::new();
        let mut row = |name: &str, value: &str| _ = writeln!(text, "{name:<10}{value}");
        let file = |module: &ModuleFile| format!("{} ({})", module.name, module.path.display());
        drivers(prepared).for_each(|driver| row("driver", &file(driver)));
        watched(prepared).skip(1 + prepared.more.len()).for_each(|module| row("watched", &file(module)));
        others(prepared).for_each(|module| row("module", &file(module)));
        let kernel = &prepared.kernel;
        row("kernel", &format!("{} ({})", kernel.release, kernel.vmlinuz.display()));
        let device = prepared.choice.device.as_ref();
        row("device", &device.map_or("none".to_owned(), |device| device.options.join(" + ")));
        row("workload", &prepared.workload.name);
        if let Some((root, of)) = prepared.root.as_ref().zip(plan.root.as_ref()) {
            row("root", &format!("{of} (sha256 {})", root.digest()));
        }
        row("checkers", &plan.tools.join(", "));
        row("gate", &format!("{}, mode {}", plan.gate.word(), plan.mode.word()));
        let (major, minor) = prepared.qemu.version;
        row("QEMU", &format!("{major}.{minor} ({})", prepared.qemu.program.display()));
        let words = words_of_qemu(prepared, &self.options(&self.folder.path().join("config.json")));
        let quoted =
            |word: &String| shlex::try_quote(word).map_or_else(|_| word.clone(), |word| word.into_owned());
        row("command", &words.iter().map(quoted).collect::<Vec<_>>().join(" "));
        text
    }
}
