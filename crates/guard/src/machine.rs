//! Settings of this machine's kernel that can refuse modules without a signature of the kernel's makers.

use std::fs;
use std::path::Path;

/// Notes that a user should read before loading guarded modules.
pub fn notes(root: &Path) -> Vec<String> {
    let read = |file: &str| fs::read_to_string(root.join(file)).unwrap_or_default();
    let mut notes = Vec::new();
    // The active mode is in brackets.
    let lockdown = read("sys/kernel/security/lockdown");
    if let Some(mode) = lockdown.split_once('[').and_then(|(_, rest)| Some(rest.split_once(']')?.0))
        && mode != "none"
    {
        notes.push(format!(
            "this kernel is locked down ({mode}) and loads signed modules only; docs/start/guard-a-driver.md says how to sign them"
        ));
    } else if read("sys/module/module/parameters/sig_enforce").trim() == "Y" {
        notes.push(
            "this kernel loads signed modules only; docs/start/guard-a-driver.md says how to sign them"
                .to_owned(),
        );
    }
    if read("proc/sys/kernel/modules_disabled").trim() == "1" {
        notes.push(
            "this kernel loads no modules until it is booted again (kernel.modules_disabled)".to_owned(),
        );
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_is_noted() {
        let folder = tempfile::tempdir().unwrap();
        let put = |file: &str, text: &str| {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let noted = || notes(folder.path()).join("\n");
        assert_eq!(noted(), "");
        put("sys/kernel/security/lockdown", "[none] integrity confidentiality\n");
        put("sys/module/module/parameters/sig_enforce", "N\n");
        assert_eq!(noted(), "");
        put("sys/module/module/parameters/sig_enforce", "Y\n");
        assert!(noted().contains("signed modules only; docs/start/guard-a-driver.md"));
        put("sys/kernel/security/lockdown", "none [integrity] confidentiality\n");
        put("proc/sys/kernel/modules_disabled", "1\n");
        assert!(noted().contains("locked down (integrity)") && noted().contains("modules_disabled"));
    }
}
