//! Writes the gdb commands that make modules, and the kernel's lines, known.

use std::path::{Path, PathBuf};

/// A module with its own symbols, and possibly line information.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Path of the module's file, or of a file with its debug information.
    pub file: PathBuf,
    /// Names and guest virtual addresses of its sections. The names are those of the file, not of the
    /// guest.
    pub sections: Vec<(String, u64)>,
}

/// The kernel's file with its debug information.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Path of the file.
    pub file: PathBuf,
    /// The distance from link-time to guest virtual addresses.
    pub slide: u64,
}

/// The commands that make the kernel's lines and modules known. `None` where a file's name cannot be written in a
/// command.
pub fn commands(kernel: Option<&Kernel>, modules: &[Module]) -> Option<String> {
    let mut text = String::new();
    if let Some(Kernel { file, slide }) = kernel {
        text.push_str(&format!("add-symbol-file {} -o {slide:#x}\n", quoted(file)?));
    }
    for module in modules {
        text.push_str(&format!("add-symbol-file {}", quoted(&module.file)?));
        for (name, address) in module.sections.iter().filter(|(name, _)| is_plain(name)) {
            text.push_str(&format!(" -s {name} {address:#x}"));
        }
        text.push('\n');
    }
    Some(text)
}

/// Whether a section's name can stand in a command unchanged.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// A path as gdb reads it in a command; `None` where that is impossible.
fn quoted(path: &Path) -> Option<String> {
    let text = path.to_str().filter(|text| !text.contains(char::is_control))?;
    Some(format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_does_not_become_a_command() {
        let module = |file: &str, section: &str| Module {
            file: file.into(),
            sections: vec![(".text".into(), 0x10), (section.into(), 0x20)],
        };
        assert_eq!(
            commands(None, &[module("/a b/\"x.ko", ".data.rel")]).unwrap(),
            "add-symbol-file \"/a b/\\\"x.ko\" -s .text 0x10 -s .data.rel 0x20\n"
        );
        assert_eq!(
            commands(None, &[module("x.ko", "x\nshell id")]).unwrap(),
            "add-symbol-file \"x.ko\" -s .text 0x10\n"
        );
        assert_eq!(commands(None, &[module("x\nshell id", ".data")]), None);
        let kernel = |file: &str| Kernel { file: file.into(), slide: 0x100_0000 };
        assert_eq!(
            commands(Some(&kernel("/c/vmlinux")), &[]).unwrap(),
            "add-symbol-file \"/c/vmlinux\" -o 0x1000000\n"
        );
        assert_eq!(commands(Some(&kernel("x\nshell id")), &[]), None);
    }
}
