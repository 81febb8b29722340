//! What words of QEMU's command line name outside QEMU: files, TCP ports, Unix sockets, and memory.
//!
//! The words are the user's, so that what they name is permitted. A word may be written in QEMU's own syntax or in
//! JSON. A file that is absent opens its folder, because QEMU may create it there.

use guardrail_jail::Jail;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Keys whose value names a file even without a slash.
const FILE_KEYS: [&str; 6] = ["file", "filename", "path", "rrfile", "logfile", "mem-path"];
/// Options whose next word is the name of a file.
const FILE_OPTIONS: [&str; 3] = ["-D", "-kernel", "-bios"];
/// What may precede a file's name in a value.
const SCHEMES: [&str; 3] = ["file:", "unix:", "pipe:"];
/// What a word contains that opens a Unix socket.
const UNIX: [&str; 3] = ["unix:", "socket,", "\"unix\""];
/// What a word contains that sends UDP packets.
const UDP: [&str; 2] = ["udp", "dgram"];
/// Where the names of a process's own descriptors begin. It opens those whatever its jail is.
const DESCRIPTORS: [&str; 2] = ["/proc/self/", "/dev/fd/"];
/// The port of `-s`.
const DEBUGGER: u16 = 1234;

/// The files and ports that these words name.
pub fn named(words: &[String]) -> Jail {
    let mut jail = Jail::new();
    let mut previous = "";
    for word in words {
        if word == "-s" {
            jail = jail.binds(DEBUGGER);
        }
        if UNIX.iter().any(|unix| word.contains(unix)) {
            jail = jail.unix_sockets();
        }
        if UDP.iter().any(|udp| word.contains(udp)) {
            jail = jail.udp();
        }
        for (key, value) in values(word) {
            let key = if FILE_OPTIONS.contains(&previous) { FILE_KEYS[0] } else { key.as_str() };
            jail = file(key, &value).into_iter().fold(jail, Jail::writes);
            jail = ports(key, &value).into_iter().fold(jail, |jail, port| jail.binds(port).connects(port));
        }
        previous = word;
    }
    jail
}

/// How many bytes of memory these words may give to QEMU, at most.
pub fn memory(words: &[String]) -> u64 {
    let mut previous = "";
    let mut sum: u64 = 0;
    for word in words {
        let of_machine = previous == "-m";
        for (key, value) in values(word) {
            let unit = match key.rsplit('.').next().unwrap_or_default() {
                "tb-size" => 20,
                "" | "size" | "maxmem" if of_machine => 20,
                "size" => 0,
                _ => continue,
            };
            if of_machine || !key.is_empty() {
                sum = sum.saturating_add(bytes(&value, unit).unwrap_or(0));
            }
        }
        previous = word;
    }
    sum
}

/// Reads a size with a suffix such as `M`. One without is in units of as many bits.
fn bytes(text: &str, unit: u32) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let bits = match text[digits.len()..].chars().next().map(|c| c.to_ascii_uppercase()) {
        None => unit,
        Some('B') => 0,
        Some('K') => 10,
        Some('M') => 20,
        Some('G') => 30,
        Some('T') => 40,
        Some(_) => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << bits)
}

/// All values in a word, with their keys; a value without a key has an empty one.
fn values(word: &str) -> Vec<(String, String)> {
    if let Ok(json @ Value::Object(_)) = serde_json::from_str(word) {
        let mut found = Vec::new();
        leaves("", &json, &mut found);
        return found;
    }
    // A comma in a value is written twice.
    let parts = word.replace(",,", "\0");
    let parts = parts.split(',').map(|part| part.replace('\0', ","));
    parts
        .map(|part| match part.split_once('=') {
            Some((key, value)) => (key.to_owned(), value.to_owned()),
            None => (String::new(), part),
        })
        .collect()
}

fn leaves(key: &str, value: &Value, found: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| leaves(key, value, found)),
        Value::Array(items) => items.iter().for_each(|value| leaves(key, value, found)),
        Value::String(text) => found.push((key.to_owned(), text.clone())),
        Value::Number(number) => found.push((key.to_owned(), number.to_string())),
        Value::Null | Value::Bool(_) => {}
    }
}

/// The file that a value names, or the folder where it would be.
fn file(key: &str, value: &str) -> Option<PathBuf> {
    let name = SCHEMES.iter().find_map(|scheme| value.strip_prefix(scheme));
    let certain = name.is_some() || FILE_KEYS.contains(&key.rsplit('.').next().unwrap_or(key));
    let name = name.unwrap_or(value);
    let own = DESCRIPTORS.iter().any(|folder| name.starts_with(folder));
    if name.is_empty() || own || !certain && !name.contains('/') {
        return None;
    }
    let path = std::path::absolute(name).ok()?;
    if path.exists() {
        return Some(path);
    }
    let folder = path.parent().filter(|folder| *folder != Path::new("/") && folder.is_dir());
    folder.map(Path::to_path_buf)
}

/// TCP ports: of `tcp:HOST:PORT`, also with a second pair behind a dash, and of `port=PORT`.
fn ports(key: &str, value: &str) -> Option<u16> {
    if key.rsplit('.').next() == Some("port") {
        return value.parse().ok();
    }
    let place = value.strip_prefix("tcp:")?.split('-').next()?;
    place.rsplit(':').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str]) -> Jail {
        named(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn files_are_found_in_either_syntax() {
        let folder = tempfile::tempdir().unwrap();
        let (there, absent) = (folder.path().join("a,b"), folder.path().join("absent"));
        std::fs::write(&there, "").unwrap();
        let plain =
            format!("if=none,id=d,format=raw,file={}", there.display().to_string().replace(',', ",,"));
        let json = serde_json::json!({ "driver": "raw", "file": { "filename": there } }).to_string();
        for word in [plain, json] {
            assert_eq!(of(&["-drive", &word]), Jail::new().writes(&there));
        }
        let inside = Jail::new().writes(folder.path());
        assert_eq!(
            of(&["-icount", &format!("shift=5,rr=record,rrfile={}", absent.display())]),
            inside.clone()
        );
        let socket = format!("unix:{},server=on", absent.display());
        assert_eq!(of(&["-qmp", &socket]), inside.unix_sockets());
        assert_eq!(of(&["-netdev", "socket,id=n,udp=:1"]), of(&["-netdev", "socket,id=n"]).udp());
        assert_eq!(of(&["-D", "Cargo.toml"]), Jail::new().writes(std::path::absolute("Cargo.toml").unwrap()));
    }

    #[test]
    fn what_is_no_file_opens_nothing() {
        let words = ["-trace", "memory_region_ops_read", "-global", "virtio-pci.ioeventfd=off", "-fw_cfg"];
        assert_eq!(of(&words), Jail::new());
        assert_eq!(
            of(&[
                "name=opt/guardrail/files0",
                "mem-path=/proc/self/fd/0",
                "e1000,netdev=net0,addr=04.0",
                "/absent"
            ]),
            Jail::new()
        );
    }

    #[test]
    fn memory_is_summed() {
        let of = |words: &[&str]| memory(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>());
        const MIB: u64 = 1 << 20;
        assert_eq!(of(&["-m", "4G"]), 4096 * MIB);
        assert_eq!(of(&["-m", "512,maxmem=2g"]), 2560 * MIB);
        assert_eq!(of(&["-object", "memory-backend-file,id=ram,size=512M,mem-path=/x"]), 512 * MIB);
        assert_eq!(of(&["-accel", "tcg,tb-size=64", "-object", r#"{"size": 1048576}"#]), 65 * MIB);
        assert_eq!(of(&["-device", "e1000", "4G", "-append", "size", "-m", "many"]), 0);
    }

    #[test]
    fn ports_are_found() {
        assert_eq!(of(&["-s"]), Jail::new().binds(1234));
        for word in ["tcp::5000,server=on", "user,hostfwd=tcp:127.0.0.1:5000-10.0.2.15:80", "id=a,port=5000"]
        {
            assert_eq!(of(&[word]), Jail::new().binds(5000).connects(5000), "{word}");
        }
    }
}
