//! Whether a program of a root could run in a guest.

use super::tree::{Content, Node, Tree};
use crate::libraries::Needs;

/// Where a program without a slash in its name is looked for.
const FOLDERS: [&str; 6] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
/// The most links that lead to one file, as in Linux.
const MOST_LINKS: u32 = 40;
/// How often a script may be run by a script.
const MOST_SCRIPTS: u32 = 4;

/// Says why a program cannot run in the root.
pub(super) fn refuse(tree: &Tree, program: &str) -> Result<(), String> {
    let path = match program.contains('/') {
        true => file(tree, program).map(|_| program.to_owned()),
        false => {
            FOLDERS.iter().map(|folder| format!("{folder}/{program}")).find(|path| file(tree, path).is_some())
        }
    };
    let path = path.ok_or_else(|| format!("it has no program {program}"))?;
    refuse_file(tree, &path, MOST_SCRIPTS)
}

fn refuse_file(tree: &Tree, path: &str, scripts: u32) -> Result<(), String> {
    let Some((mode, bytes)) = file(tree, path) else { return Err(format!("it has no program {path}")) };
    if mode & 0o111 == 0 {
        return Err(format!("{path} in it is no program: its mode is {mode:o}"));
    }
    if let Some(line) = bytes.strip_prefix(b"#!") {
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        let by = line.split_whitespace().next().unwrap_or_default();
        return match file(tree, by) {
            Some(_) if scripts > 0 => refuse_file(tree, by, scripts - 1),
            Some(_) => Err(format!("{path} in it is run by a script, and that by others")),
            None => Err(format!("{path} in it is run by {by}, which it lacks")),
        };
    }
    match Needs::of(bytes) {
        Some(needs) => match needs.loader {
            Some(loader) if file(tree, &loader).is_none() => {
                Err(format!("{path} in it needs the loader {loader}, which it lacks"))
            }
            _ => Ok(()),
        },
        None if bytes.starts_with(b"\x7fELF") => {
            Err(format!("{path} in it is for another machine; the guest runs programs for x86-64 Linux"))
        }
        None => Err(format!("{path} in it is neither an ELF program nor a script that begins with #!")),
    }
}

/// The longest path, in bytes (PATH_MAX).
const LONGEST: usize = 4096;

/// The mode and the bytes of the file to which a path leads within the root.
fn file<'a>(tree: &'a Tree, path: &str) -> Option<(u32, &'a [u8])> {
    if path.len() > LONGEST {
        return None;
    }
    let parts = |path: &str| path.split('/').rev().map(str::to_owned).collect::<Vec<_>>();
    let (mut at, mut open, mut links) = (Vec::<String>::new(), parts(path), 0);
    let mut found = None;
    while let Some(part) = open.pop() {
        match part.as_str() {
            "" | "." => continue,
            ".." => {
                at.pop();
                continue;
            }
            _ => at.push(part),
        }
        let Node { mode, content, .. } = tree.get(&at.join("/"))?;
        match content {
            Content::Folder => {}
            Content::File(bytes) => {
                found = Some((*mode, bytes.as_slice()));
                break;
            }
            Content::Link(target) => {
                links += 1;
                if links > MOST_LINKS {
                    return None;
                }
                if target.starts_with('/') {
                    at.clear();
                } else {
                    at.pop();
                }
                open.extend(parts(target));
            }
        }
    }
    // Below a file there is nothing.
    found.filter(|_| open.is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::tree::tests::node;
    use super::*;

    fn tree(entries: &[(&str, Content)]) -> Tree {
        let mut tree = Tree::new(1 << 30);
        entries.iter().for_each(|(path, content)| tree.add(path, node(content.clone())).unwrap());
        tree
    }

    fn text(text: &str) -> Content {
        Content::File(text.as_bytes().to_vec())
    }

    fn link(target: &str) -> Content {
        Content::Link(target.into())
    }

    #[test]
    fn paths_lead_through_links_and_stay_in_the_root() {
        let tree = tree(&[
            ("bin", link("usr/bin")),
            ("usr/bin/sh", link("/etc/shell")),
            ("etc/shell", link("../../../usr/bin/dash")),
            ("usr/bin/dash", text("dash")),
            ("loop", link("loop")),
        ]);
        assert_eq!(file(&tree, "/bin/sh").map(|found| found.1), Some(&b"dash"[..]));
        assert_eq!(file(&tree, "/../bin/./dash").map(|found| found.1), Some(&b"dash"[..]));
        for absent in ["/loop", "/bin", "/bin/sh/x", "/nowhere", ""] {
            assert!(file(&tree, absent).is_none(), "{absent}");
        }
    }

    #[test]
    fn programs_that_could_not_run_are_refused() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let mut foreign = own.clone();
        // The low byte of e_machine: 183 is AArch64.
        foreign[18] = 183;
        let mut tree = tree(&[
            ("bin/own", Content::File(own)),
            ("bin/foreign", Content::File(foreign)),
            ("bin/script", text("#!/bin/python3 -u\n")),
            ("bin/round", text("#!/bin/round\n")),
            ("bin/words", text("hello")),
        ]);
        let why = |tree: &Tree, program: &str| refuse(tree, program).err().unwrap_or_default();
        assert_eq!(why(&tree, "nothing"), "it has no program nothing");
        assert_eq!(why(&tree, "/bin/nothing"), "it has no program /bin/nothing");
        assert!(why(&tree, "own").contains("needs the loader /lib64/ld-linux-x86-64.so.2, which it lacks"));
        assert!(why(&tree, "foreign").contains("is for another machine"));
        assert_eq!(why(&tree, "script"), "/bin/script in it is run by /bin/python3, which it lacks");
        assert!(why(&tree, "/bin/round").contains("run by a script"));
        assert!(why(&tree, "words").contains("neither an ELF program nor a script"));
        tree.add("lib64/ld-linux-x86-64.so.2", node(text("loader"))).unwrap();
        assert_eq!(why(&tree, "own"), "");
        let mut plain = node(text("x"));
        plain.mode = 0o644;
        tree.add("bin/plain", plain).unwrap();
        assert_eq!(why(&tree, "plain"), "/bin/plain in it is no program: its mode is 644");
    }
}
