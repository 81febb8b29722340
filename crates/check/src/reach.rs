//! Which files a command opens that only reads. A trace names its kernel and its modules, and is not trusted.

use crate::sandbox;
use guardrail_host::{HostError, files};
use guardrail_jail::Jail;
use guardrail_trace::file::TraceReader;
use guardrail_vm::Cache;
use std::path::{Path, PathBuf};

/// Where kernels, modules and their debug files are on any machine, besides the cache.
const SYSTEM: [&str; 4] = ["/boot", "/lib/modules", "/usr/lib/modules", "/usr/lib/debug"];

/// The files and folders that a trace may name.
#[derive(Clone, Debug)]
pub struct Reach(Vec<PathBuf>);

impl Reach {
    /// The cache, the system's folders of kernels, and what the user named.
    pub fn new(cache: &Cache, named: &[PathBuf]) -> Result<Reach, HostError> {
        // What is in the cache may be a link to another one.
        let all = files::linked(cache.root()).into_iter().chain(SYSTEM.map(PathBuf::from));
        let mut all: Vec<PathBuf> = all.filter_map(|path| path.canonicalize().ok()).collect();
        for path in named {
            let bad = |error| HostError::Usage(format!("--open {}: {error}", path.display()));
            all.push(path.canonicalize().map_err(bad)?);
        }
        Ok(Reach(all))
    }

    /// The same, with more files that the user named, as far as they are there.
    pub fn and(&self, named: &[PathBuf]) -> Reach {
        let named = named.iter().filter_map(|file| file.canonicalize().ok());
        Reach(self.0.iter().cloned().chain(named).collect())
    }

    /// Refuses a file that the trace names, but may not.
    pub fn refuse(&self, file: &Path) -> Result<(), HostError> {
        // A file that is absent is refused by those who look for it.
        let Ok(real) = file.canonicalize() else { return Ok(()) };
        if self.0.iter().any(|folder| real.starts_with(folder)) {
            return Ok(());
        }
        Err(HostError::Usage(format!(
            "the trace names {0}, which is neither in the cache nor in a folder of kernels; if you trust that, add --open {0}",
            file.display()
        )))
    }

    /// Opens a trace. For good, the process then opens only that and what a trace may name, writes only `written` and
    /// what is open, and starts nothing.
    pub fn open(
        &self,
        file: &Path,
        written: impl Iterator<Item = PathBuf>,
    ) -> Result<TraceReader, HostError> {
        self.confine(file, written)?;
        Ok(TraceReader::open(file)?)
    }

    /// Confines the process in the same way, before the trace is opened.
    pub fn confine(&self, file: &Path, written: impl Iterator<Item = PathBuf>) -> Result<(), HostError> {
        let read: Vec<PathBuf> = [file.to_path_buf()].into_iter().chain(self.0.clone()).collect();
        only(&read, &written.collect::<Vec<_>>())
    }
}

/// For good, the process then opens only these files, writes only what is open, and starts nothing.
pub fn only_reading<'a>(files: impl IntoIterator<Item = &'a Path>) -> Result<(), HostError> {
    let files: Vec<PathBuf> = files.into_iter().map(Path::to_path_buf).collect();
    only(&files, &[])
}

/// For good, the process then reads what this folder holds, writes only what is open, starts nothing, and uses no network but
/// to answer at the sockets that listen.
pub fn only_serving(folder: &Path) -> Result<(), HostError> {
    let jail = Jail::new().reads(folder);
    sandbox::confine_server(&jail).map_err(HostError::io("confine", "this process"))
}

/// For good, the process then opens only these files, what these folders hold, and the system's kernels. It writes only the
/// second ones and what is open, and starts nothing.
pub fn confine(read: &[PathBuf], written: &[PathBuf]) -> Result<(), HostError> {
    let read: Vec<PathBuf> = read.iter().cloned().chain(SYSTEM.map(PathBuf::from)).collect();
    only(&read, written)
}

fn only(read: &[PathBuf], written: &[PathBuf]) -> Result<(), HostError> {
    let jail = written.iter().fold(read.iter().fold(Jail::new(), Jail::reads), Jail::writes);
    sandbox::confine(&jail).map_err(HostError::io("confine", "this process"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_trace_names_what_is_in_the_cache_or_what_the_user_named() {
        let folder = tempfile::tempdir().unwrap();
        let [cache, other, module] = ["cache", "other", "module.ko"].map(|name| folder.path().join(name));
        for path in [&cache, &other] {
            fs::create_dir(path).unwrap();
            fs::write(path.join("kernel"), "").unwrap();
        }
        fs::write(&module, "").unwrap();
        let cache = Cache::at(&cache).unwrap();
        let reach = |named: &[PathBuf]| Reach::new(&cache, named);
        let own = reach(&[]).unwrap();
        let permits = |reach: &Reach, path: &Path| reach.refuse(path).is_ok();
        assert!(permits(&own, &cache.path("kernel")) && permits(&own, &folder.path().join("absent")));
        assert!(!permits(&own, &module) && !permits(&own, &other.join("kernel")));
        assert!(!permits(&own, &cache.path("../other/kernel")) && !permits(&own, Path::new("/proc/kmsg")));
        let why = own.refuse(&module).unwrap_err().to_string();
        assert!(why.ends_with(&format!("add --open {}", module.display())), "{why}");
        assert!(permits(&reach(std::slice::from_ref(&module)).unwrap(), &module));
        let why = reach(&[folder.path().join("absent")]).unwrap_err().to_string();
        assert!(why.contains("absent"), "{why}");
        // Links out of the cache lead to other caches, and those inside it lead nowhere else.
        std::os::unix::fs::symlink(&other, cache.path("linked")).unwrap();
        assert!(permits(&reach(&[]).unwrap(), &cache.path("linked/kernel")));
        std::os::unix::fs::symlink(&module, other.join("link")).unwrap();
        assert!(!permits(&reach(&[]).unwrap(), &cache.path("linked/link")));
    }
}
