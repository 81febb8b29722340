//! A root that is a `.tar` archive, also one that is compressed by gzip, xz or zstd.

use super::refused;
use super::tree::{Content, Node, Tree};
use crate::cpio::Owner;
use crate::error::{Context, Result};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use tar::{Archive, Entry, EntryType};

/// How many bytes an archive may have besides its files: headers, and long names.
const BESIDES: u64 = 256 << 20;

/// Reads an archive.
pub(super) fn read<'a>(path: &Path, file: impl Read + 'a, room: u64) -> Result<Tree> {
    let mut file = BufReader::new(file);
    let start = file.fill_buf().context("read", path)?.to_vec();
    let packed: Box<dyn Read + 'a> = if start.starts_with(b"\xfd7zXZ\0") {
        Box::new(liblzma::read::XzDecoder::new_multi_decoder(file))
    } else if start.starts_with(b"\x1f\x8b") {
        Box::new(flate2::bufread::MultiGzDecoder::new(file))
    } else if start.starts_with(b"\x28\xb5\x2f\xfd") {
        Box::new(zstd::stream::read::Decoder::with_buffer(file).context("read", path)?)
    } else if start.get(257..262) == Some(b"ustar") {
        Box::new(file)
    } else {
        let why = "it is neither a folder, nor a .tar archive (also .tar.gz, .tar.xz, .tar.zst), nor an image with ext4 or squashfs";
        return Err(refused(path, why));
    };
    let most = room.saturating_add(BESIDES);
    let mut archive = Archive::new(packed.take(most));
    let mut tree = Tree::new(room);
    let read = entries(&mut archive, &mut tree);
    let cut = archive.into_inner().limit() == 0;
    match read {
        _ if cut => Err(refused(
            path,
            &format!("unpacked, it has {} MiB or more, which is more than fits", most >> 20),
        )),
        Ok(()) => Ok(tree),
        Err(why) => Err(refused(path, &why)),
    }
}

fn entries(archive: &mut Archive<impl Read>, tree: &mut Tree) -> std::result::Result<(), String> {
    let broken = |error: std::io::Error| format!("the archive cannot be read: {error}");
    for entry in archive.entries().map_err(broken)? {
        let mut entry = entry.map_err(broken)?;
        let bytes = entry.path_bytes().into_owned();
        let Ok(name) = String::from_utf8(bytes) else { return Err("a name in it is no UTF-8".into()) };
        let Some(name) = plain(&name)? else { continue };
        refuse_sparse(&mut entry)?;
        if let Some(node) = node(&mut entry, &name, tree)? {
            tree.add(&name, node)?;
        }
    }
    Ok(())
}

/// Refuses a sparse file in pax form, which has another name and a map before its contents.
fn refuse_sparse(entry: &mut Entry<'_, impl Read>) -> std::result::Result<(), String> {
    let extensions =
        entry.pax_extensions().map_err(|error| format!("the archive cannot be read: {error}"))?;
    let sparse = |extension: std::io::Result<tar::PaxExtension<'_>>| {
        extension.is_ok_and(|extension| extension.key_bytes().starts_with(b"GNU.sparse."))
    };
    match extensions.into_iter().flatten().any(sparse) {
        true => Err("it has sparse files in pax form; pack it without --sparse".to_owned()),
        false => Ok(()),
    }
}

/// An entry of the archive; `None` for one that is left out.
fn node(
    entry: &mut Entry<'_, impl Read>,
    name: &str,
    tree: &Tree,
) -> std::result::Result<Option<Node>, String> {
    let broken = |error: std::io::Error| format!("the archive cannot be read at /{name}: {error}");
    let header = entry.header();
    let kind = header.entry_type();
    let number = |value: std::io::Result<u64>| {
        u32::try_from(value.map_err(broken)?)
            .map_err(|_| format!("the owner of /{name} is no number of a user"))
    };
    let (user, group) = (number(header.uid())?, number(header.gid())?);
    let mode = header.mode().map_err(broken)? & 0o7777;
    if Tree::leaves_out(name) || matches!(kind, EntryType::XGlobalHeader) {
        return Ok(None);
    }
    let target = |entry: &Entry<'_, _>| {
        let bytes = entry.link_name_bytes().map(|name| name.into_owned()).unwrap_or_default();
        String::from_utf8(bytes).map_err(|_| format!("the link /{name} leads to a name that is no UTF-8"))
    };
    let content = match kind {
        EntryType::Directory => Content::Folder,
        EntryType::Symlink => Content::Link(target(entry)?),
        EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
            tree.refuse_size(entry.size())?;
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).map_err(broken)?;
            Content::File(bytes)
        }
        // A further name of a file: the guest gets the file twice.
        EntryType::Link => {
            let other = plain(&target(entry)?)?.unwrap_or_default();
            return match tree.get(&other) {
                Some(Node { content: Content::Folder, .. }) | None => Err(format!(
                    "/{name} is another name of /{other}, which is no file before it in the archive"
                )),
                Some(node) => Ok(Some(node.clone())),
            };
        }
        _ => {
            return Err(format!(
                "/{name} is a device, a pipe or of a kind that no root may have; they may be in /dev, /run and /tmp alone"
            ));
        }
    };
    Ok(Some(Node { mode, owner: Owner { user, group }, content }))
}

/// A path without what does not count; `None` for the root itself.
fn plain(name: &str) -> std::result::Result<Option<String>, String> {
    let parts: Vec<&str> = name.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if parts.contains(&"..") || name.contains('\0') {
        return Err(format!("the path {name:?} leads out of it"));
    }
    Ok(Some(parts.join("/")).filter(|name| !name.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;
    use tar::{Builder, Header};

    /// An archive with these entries: kind, name, target of a link, contents.
    fn archive(entries: &[(EntryType, &str, &str, &[u8])]) -> Vec<u8> {
        let mut builder = Builder::new(Vec::new());
        for (kind, name, target, bytes) in entries {
            let mut header = Header::new_gnu();
            header.set_entry_type(*kind);
            header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
            header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
            header.set_size(bytes.len() as u64);
            header.set_mode(0o644);
            header.set_uid(7);
            header.set_gid(0);
            header.set_cksum();
            builder.append(&header, *bytes).unwrap();
        }
        builder.into_inner().unwrap()
    }

    /// Room for a few files.
    const ROOM: u64 = 32 << 10;

    fn read_bytes(bytes: &[u8], room: u64) -> std::result::Result<Tree, String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        read(file.path(), File::open(file.path()).unwrap(), room).map_err(|error| error.to_string())
    }

    #[test]
    fn archives_are_read_whatever_packs_them() {
        use EntryType::{Char, Link, Regular, Symlink};
        let plain = archive(&[
            (Char, "./dev/null", "", b""),
            (Regular, "./bin/a", "", b"program"),
            (Link, "./bin/b", "./bin/a", b""),
            (Symlink, "./sh", "/bin/a", b""),
        ]);
        let xz = liblzma::encode_all(&plain[..], 1).unwrap();
        let zst = zstd::encode_all(&plain[..], 1).unwrap();
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(&plain).unwrap();
        for bytes in [plain.clone(), xz, zst, gz.finish().unwrap()] {
            let tree = read_bytes(&bytes, ROOM).unwrap();
            assert_eq!(tree.get("bin/b"), tree.get("bin/a"));
            assert_eq!(tree.get("bin/a").map(|node| (node.mode, node.owner.user)), Some((0o644, 7)));
            assert_eq!(tree.get("sh").map(|node| &node.content), Some(&Content::Link("/bin/a".into())));
            assert!(tree.get("dev/null").is_none());
        }
        assert!(read_bytes(&plain[..600], ROOM).unwrap_err().contains("cannot be read"));
    }

    #[test]
    fn hostile_archives_are_refused() {
        use EntryType::{Block, Fifo, Link, Regular, Symlink};
        let refused = |entries: &[(EntryType, &str, &str, &[u8])]| {
            read_bytes(&archive(entries), ROOM).map_or_else(|why| why, |_| "read".into())
        };
        assert!(refused(&[(Regular, "../x", "", b"")]).contains("leads out of it"));
        assert!(refused(&[(Regular, "a/../../x", "", b"")]).contains("leads out of it"));
        assert_eq!(refused(&[(Regular, "/x", "", b"")]), "read");
        assert!(refused(&[(Block, "sda", "", b"")]).contains("/sda is a device"));
        assert!(refused(&[(Fifo, "p", "", b"")]).contains("/p is a device"));
        assert!(refused(&[(Link, "x", "/etc/shadow", b"")]).contains("another name of /etc/shadow"));
        assert!(refused(&[(Link, "x", "../../etc/shadow", b"")]).contains("leads out of it"));
        let through = [(Symlink, "l", "/guardrail", &b""[..]), (Regular, "l/init", "", b"x")];
        assert!(refused(&through).contains("below /l, which is no folder"));
        assert!(refused(&[(Regular, "x", "", &[0; ROOM as usize])]).contains("--memory"));
        // A bomb: few bytes that become many.
        let zeros = archive(&[(Regular, "x", "", &vec![0; 1 << 20])]);
        assert!(
            read_bytes(&zstd::encode_all(&zeros[..], 1).unwrap(), ROOM).unwrap_err().contains("--memory")
        );
    }
}
