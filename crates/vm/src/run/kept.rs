//! Guests that are kept: saved when their kernel had booted, so that later runs continue from there.
//!
//! A run asks for one by a key: a digest of all that the guest is before it gets the files of the run. The first run
//! with a key boots, the second boots and is saved on the way, and those after it continue from what was saved.

use crate::fetch::owned::{self, OwnedFolder};
use crate::guest_image::initramfs::{self, Contents};
use crate::guest_image::prepare::Prepared;
use crate::run::machine;
use crate::run::options::{Kept, Options, Start};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The files of a kept guest: the guest, the distance by which its kernel was moved with a checksum of the guest, and a
/// byte for each use.
const GUEST: &str = "guest";
const SLIDE: &str = "slide";
const USES: &str = "uses";
/// The folder that QEMU may write.
const WRITTEN: &str = "written";
/// What stays for a day where a guest cannot be saved.
const NEVER: &str = "never";
/// How the names of folders begin that are not complete.
const UNFINISHED: &str = "new-";
/// How many guests are kept; each takes some 100 MB.
const MOST: usize = 8;
/// How often one is used. Then another is saved, whose kernel has another address.
const MOST_USES: u64 = 30;
/// The most bytes that a run may give its guest: it reads them slowly, and would boot as fast.
const MOST_GIVEN: usize = 2 << 20;
/// How long one is used.
const MOST_AGE: Duration = Duration::from_secs(24 * 3600);

/// What a run does about kept guests.
pub(super) enum Choice {
    /// It boots.
    Boot,
    /// It boots, and is saved on the way.
    Keep(Keeping),
    /// It continues from a guest.
    Continue(Kept),
}

/// A guest that is to be kept.
pub(super) struct Keeping {
    /// Where it is made.
    folder: OwnedFolder,
    /// Where it will be.
    place: PathBuf,
}

impl Keeping {
    /// The file in which QEMU saves it, in a folder that QEMU may write.
    pub(super) fn file(&self) -> PathBuf {
        self.folder.path().join(WRITTEN).join(GUEST)
    }

    /// Keeps the guest that was saved, or remembers that it cannot be. What cannot be written is no fault of the run.
    pub(super) fn end(self, saved: &std::result::Result<(), String>, slide: u64) {
        let _ = self.place_it(saved.is_ok(), slide);
    }

    fn place_it(self, saved: bool, slide: u64) -> std::io::Result<()> {
        if !saved {
            fs::create_dir_all(&self.place)?;
            return fs::write(self.place.join(NEVER), "");
        }
        let file = self.folder.path().join(GUEST);
        let mode = |number| std::os::unix::fs::PermissionsExt::from_mode(number);
        fs::set_permissions(&file, mode(0o644))?;
        let sum = checksum(&mut File::open(&file)?)?;
        fs::write(self.folder.path().join(SLIDE), format!("{slide} {sum}"))?;
        fs::write(self.folder.path().join(USES), "")?;
        fs::set_permissions(self.folder.path(), mode(0o755))?;
        fs::remove_dir(self.folder.path().join(WRITTEN))?;
        File::open(&file)?.sync_all()?;
        remove(&self.place);
        fs::rename(self.folder.path(), &self.place)?;
        let _ = self.folder.keep();
        Ok(())
    }
}

/// The initramfs without the files of the run; `None` where the guest can neither be kept nor continue.
pub(super) fn base(prepared: &Prepared, options: &Options, contents: &Contents<'_>) -> Option<Vec<u8>> {
    let fits = options.kept.is_some()
        && matches!(options.start, Start::Boot)
        && options.qemu_arguments.is_empty()
        && !options.device_elsewhere
        && initramfs::size_of_run(contents) <= MOST_GIVEN
        && machine::unpacked(prepared, options).is_some();
    let reader = fits.then(|| prepared.reader().ok()).flatten()?;
    initramfs::waiting(&prepared.guest_tree, contents, &reader.bytes).ok()
}

/// Chooses what a run does. `base` is the initramfs without the files of the run.
pub(super) fn choose(prepared: &Prepared, options: &Options, base: &[u8]) -> Choice {
    let key = key(prepared, options, base);
    // Without a cache that can be written, each run boots.
    let choice = options.kept.as_deref().zip(key).and_then(|(root, key)| choose_by(root, &key).ok());
    choice.unwrap_or(Choice::Boot)
}

fn choose_by(root: &Path, key: &str) -> std::io::Result<Choice> {
    owned::sweep(UNFINISHED, root);
    let place = root.join(key);
    // A full disk may be why.
    if fs::metadata(place.join(NEVER)).is_ok_and(|never| age(&never) <= MOST_AGE) {
        return Ok(Choice::Boot);
    }
    if let Some(kept) = usable(&place) {
        return Ok(Choice::Continue(kept));
    }
    if !place.is_dir() {
        // Many machines are needed once only.
        fs::create_dir_all(&place)?;
        return Ok(Choice::Boot);
    }
    make_room(root, &place);
    let folder = OwnedFolder::new(UNFINISHED, root)?;
    fs::create_dir(folder.path().join(WRITTEN))?;
    Ok(Choice::Keep(Keeping { folder, place }))
}

/// The guest does not continue: it is not used again.
pub(super) fn refuse(kept: &Kept) {
    let _ = kept.file.parent().map(|place| fs::remove_file(place.join(USES)));
}

/// Takes the file of a saved guest out of the folder that its QEMU may write: a driver that breaks out of the guest is no
/// part of later ones.
pub(super) fn take(file: &Path) -> std::io::Result<()> {
    let folder = file.parent().and_then(Path::parent).unwrap_or(Path::new(""));
    fs::rename(file, folder.join(GUEST))
}

/// The guest that is kept in a folder, if it can be used once more.
fn usable(place: &Path) -> Option<Kept> {
    let file = place.join(GUEST);
    let guest = File::open(&file).ok()?;
    if !owned::try_lock(&guest, libc::LOCK_SH) {
        return None;
    }
    let uses = File::options().append(true).open(place.join(USES)).ok()?;
    if age(&guest.metadata().ok()?) > MOST_AGE || uses.metadata().ok()?.len() >= MOST_USES {
        return None;
    }
    (&uses).write_all(b".").ok()?;
    let numbers = fs::read_to_string(place.join(SLIDE)).ok()?;
    let (slide, sum) = numbers.split_once(' ')?;
    if sum.parse() != Ok(checksum(&mut &guest).ok()?) {
        return None;
    }
    let slide = slide.parse().ok()?;
    // It may have been removed before it was locked.
    file.exists().then(|| Kept { file, slide, _in_use: Arc::new(guest) })
}

/// How long ago a file was written.
fn age(file: &fs::Metadata) -> Duration {
    let written = file.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    SystemTime::now().duration_since(written).unwrap_or_default()
}

/// A checksum of a whole file.
fn checksum(file: &mut impl Read) -> std::io::Result<u32> {
    let (mut sum, mut buffer) = (crc32fast::Hasher::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(sum.finalize()),
            read => sum.update(&buffer[..read]),
        }
    }
}

/// Removes the guests that were not used for the longest time, so that there is room for one.
fn make_room(root: &Path, place: &Path) {
    let used = |folder: &PathBuf| fs::metadata(folder.join(USES)).and_then(|uses| uses.modified()).ok();
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let others: Vec<_> = entries.map(|entry| entry.path()).filter(|folder| folder != place).collect();
    // Of machines that were needed once, nothing is left after a day.
    let is_old = |folder: &&PathBuf| fs::metadata(folder).is_ok_and(|found| age(&found) > MOST_AGE);
    others.iter().filter(|folder| used(folder).is_none()).filter(is_old).for_each(|folder| remove(folder));
    let mut kept: Vec<_> = others.into_iter().filter_map(|folder| Some((used(&folder)?, folder))).collect();
    kept.sort();
    let many = (kept.len() + 1).saturating_sub(MOST);
    kept.iter().take(many).for_each(|(_, folder)| remove(folder));
}

/// Removes a kept guest, unless a run uses it.
fn remove(place: &Path) {
    let in_use = File::open(place.join(GUEST)).is_ok_and(|guest| !owned::try_lock(&guest, libc::LOCK_EX));
    if !in_use {
        let _ = fs::remove_dir_all(place);
    }
}

/// A digest of all that a guest is before it gets the files of the run; `None` where a file cannot be looked at.
fn key(prepared: &Prepared, options: &Options, base: &[u8]) -> Option<String> {
    let mut digest = Sha256::new();
    digest.update(base);
    for word in machine::shape(prepared, options, Path::new("")).get_args() {
        digest.update(word.as_encoded_bytes());
        digest.update([0]);
    }
    let kernel = prepared.unpacked.as_deref()?;
    for file in [prepared.qemu.program.as_path(), &prepared.kernel.vmlinuz, kernel] {
        let found = fs::metadata(file).ok()?;
        let changed = found.modified().ok()?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        digest.update(format!("{} {} {}\0", file.display(), found.len(), changed.as_nanos()));
    }
    let bytes = digest.finalize();
    Some(bytes.iter().take(16).map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks for a guest, and saves it where that is wanted.
    fn run(root: &Path, key: &str) -> &'static str {
        match choose_by(root, key).unwrap() {
            Choice::Boot => "boots",
            Choice::Keep(keeping) => {
                fs::write(keeping.file(), key).unwrap();
                take(&keeping.file()).unwrap();
                keeping.end(&Ok(()), 0x20_0000);
                "is kept"
            }
            Choice::Continue(kept) => {
                assert_eq!((fs::read_to_string(&kept.file).unwrap().as_str(), kept.slide), (key, 0x20_0000));
                "continues"
            }
        }
    }

    #[test]
    fn a_guest_is_kept_that_is_asked_for_twice() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("booted");
        let runs = ["a", "b", "a", "a", "b", "a", "b"].map(|key| run(&root, key));
        assert_eq!(runs, ["boots", "boots", "is kept", "continues", "is kept", "continues", "continues"]);
        assert_eq!(fs::read(root.join("a").join(USES)).unwrap().len(), 2);
    }

    #[test]
    fn an_old_or_damaged_guest_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("a");
        let _ = [run(folder.path(), "a"), run(folder.path(), "a")];
        let damages: [&dyn Fn(); 6] = [
            &|| fs::write(place.join(USES), vec![b'.'; MOST_USES as usize]).unwrap(),
            &|| fs::write(place.join(GUEST), "b").unwrap(),
            &|| fs::write(place.join(SLIDE), "1").unwrap(),
            &|| fs::remove_file(place.join(GUEST)).unwrap(),
            &|| {
                File::options()
                    .write(true)
                    .open(place.join(GUEST))
                    .unwrap()
                    .set_modified(SystemTime::UNIX_EPOCH)
                    .unwrap()
            },
            &|| refuse(&usable(&place).unwrap()),
        ];
        for (number, damage) in damages.into_iter().enumerate() {
            assert_eq!(run(folder.path(), "a"), "continues", "{number}");
            damage();
            assert_eq!(run(folder.path(), "a"), "is kept", "{number}");
        }
    }

    #[test]
    fn a_guest_that_cannot_be_saved_is_not_tried_again() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(run(folder.path(), "a"), "boots");
        let Ok(Choice::Keep(keeping)) = choose_by(folder.path(), "a") else { panic!("it is not kept") };
        keeping.end(&Err("a device cannot be saved".to_owned()), 0);
        assert_eq!([run(folder.path(), "a"), run(folder.path(), "a")], ["boots"; 2]);
    }

    #[test]
    fn few_are_kept_and_none_is_taken_from_a_run() {
        let folder = tempfile::tempdir().unwrap();
        let keys: Vec<String> = (0..MOST + 4).map(|number| number.to_string()).collect();
        let _ = [run(folder.path(), "0"), run(folder.path(), "0")];
        let Ok(Choice::Continue(in_use)) = choose_by(folder.path(), "0") else { panic!("it was not kept") };
        for key in &keys[1..] {
            let _ = [run(folder.path(), key), run(folder.path(), key)];
        }
        let kept =
            fs::read_dir(folder.path()).unwrap().flatten().filter(|entry| entry.path().join(GUEST).exists());
        assert!(kept.count() <= MOST + 1);
        assert!(in_use.file.exists());
    }
}
