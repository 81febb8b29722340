//! Servers of Debian, unpacked and not installed, on loopback. They end with the test.

use guardrail_host::process::kill_with_parent;
use guardrail_tests::processes::runs;
use guardrail_vm::Cache;
use guardrail_vm::packages::{Fetch, Packages};
use libtest_mimic::Failed;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The tree's name in the cache; its number changes with the packages.
const TREE: &str = "servers-1";
/// The packages, without dependencies that every Debian has.
const PACKAGES: [&str; 17] = [
    "nats-server/bookworm",
    "slurmctld/bookworm",
    "slurmd/bookworm",
    "slurm-client/bookworm",
    "slurm-wlm-basic-plugins/bookworm",
    "munge/bookworm",
    "libmunge2/bookworm",
    "libhwloc15/bookworm",
    "libnuma1/bookworm",
    "liblz4-1/bookworm",
    "libpam0g/bookworm",
    "libdbus-1-3/bookworm",
    "libjson-c5/bookworm",
    "liblua5.1-0/bookworm",
    "libyaml-0-2/bookworm",
    "libgcrypt20/bookworm",
    "libgpg-error0/bookworm",
];
/// The folders of the tree with libraries.
const LIBRARIES: [&str; 3] =
    ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu/slurm-wlm"];
/// How long a server may take to answer.
const STARTING: Duration = Duration::from_secs(30);

/// The unpacked packages.
fn tree() -> Result<PathBuf, Failed> {
    let packages = Packages::new(&Cache::open()?);
    Ok(packages.ensure_tree(TREE, "the servers of fleets", Fetch::Exactly(&PACKAGES))?)
}

/// The value of `LD_LIBRARY_PATH` for programs of the tree.
fn libraries(tree: &Path) -> OsString {
    let folders = LIBRARIES.map(|folder| tree.join(folder).into_os_string());
    folders.join(&OsString::from(":"))
}

/// A port of loopback that nobody has.
fn free_port() -> Result<u16, Failed> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// A server that can be killed and started again.
pub struct Server {
    what: &'static str,
    command: Box<dyn Fn() -> Command>,
    port: u16,
    child: Child,
}

impl Server {
    fn start(what: &'static str, port: u16, command: Box<dyn Fn() -> Command>) -> Result<Server, Failed> {
        let child = spawn(&command)?;
        let mut server = Server { what, command, port, child };
        server.wait()?;
        Ok(server)
    }

    /// Kills the server, starts it again a moment later, and waits until it answers.
    pub fn kill(&mut self) -> Result<(), Failed> {
        self.end()?;
        std::thread::sleep(Duration::from_millis(300));
        self.child = spawn(&self.command)?;
        self.wait()
    }

    /// Kills the server for good.
    pub fn end(&mut self) -> Result<(), Failed> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// The server's name.
    pub fn what(&self) -> &'static str {
        self.what
    }

    fn wait(&mut self) -> Result<(), Failed> {
        let end = Instant::now() + STARTING;
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            if self.child.try_wait()?.is_some() || Instant::now() > end {
                return Err(format!("{} does not start", self.what).into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(command: &dyn Fn() -> Command) -> Result<Child, Failed> {
    let mut command = command();
    command.stdin(Stdio::null());
    kill_with_parent(&mut command);
    Ok(command.spawn()?)
}

/// A NATS server with streams.
pub struct Nats {
    server: Server,
    _folder: tempfile::TempDir,
}

impl Nats {
    /// Starts a server with streams in a folder of its own.
    pub fn start() -> Result<Nats, Failed> {
        Nats::with(&["-js"])
    }

    /// Starts a server with these options.
    pub fn with(options: &[&str]) -> Result<Nats, Failed> {
        let (program, port) = (tree()?.join("usr/sbin/nats-server"), free_port()?);
        let folder = tempfile::tempdir()?;
        let (data, log) = (folder.path().join("data"), folder.path().join("log"));
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        let command = move || {
            let mut command = Command::new(&program);
            command.args(["-a", "127.0.0.1", "-p", &port.to_string(), "-sd"]).arg(&data);
            command.args(&options).stdout(Stdio::null()).stderr(log_file(&log));
            command
        };
        Ok(Nats { server: Server::start("nats-server", port, Box::new(command))?, _folder: folder })
    }

    /// The server's address.
    pub fn address(&self) -> String {
        format!("nats://127.0.0.1:{}", self.server.port)
    }
}

impl std::ops::Deref for Nats {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl std::ops::DerefMut for Nats {
    fn deref_mut(&mut self) -> &mut Server {
        &mut self.server
    }
}

fn log_file(path: &Path) -> Stdio {
    File::options().create(true).append(true).open(path).map_or(Stdio::null(), Stdio::from)
}

/// A cluster of Slurm with one node, this machine.
pub struct Cluster {
    /// `slurmctld`.
    pub controller: Server,
    /// `slurmd`.
    pub node: Server,
    _keys: Munge,
    rest: Rest,
}

/// The daemon that signs messages between Slurm's.
struct Munge(Child);

impl Drop for Munge {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The cluster's folder. When it goes, so does what the cluster started and what is still there.
struct Rest(tempfile::TempDir, PathBuf);

impl Cluster {
    /// Starts the daemons; `None` where this user may not.
    pub fn start() -> Result<Option<Cluster>, Failed> {
        // SAFETY: the call takes nothing and cannot fail.
        if unsafe { libc::geteuid() } != 0 {
            return Ok(None);
        }
        let tree = tree()?;
        let rest = Rest(tempfile::tempdir()?, tree.clone());
        let folder = rest.0.path().to_path_buf();
        for name in ["state", "spool", "bin"] {
            fs::create_dir(folder.join(name))?;
        }
        let keys = munge(&tree, &folder)?;
        let ports = (free_port()?, free_port()?);
        fs::write(folder.join("slurm.conf"), configuration(&tree, &folder, ports)?)?;
        for name in ["sbatch", "squeue", "scancel"] {
            let text = format!(
                "#!/bin/sh\nLD_LIBRARY_PATH={} exec {}/usr/bin/{name} \"$@\"\n",
                libraries(&tree).display(),
                tree.display()
            );
            let program = folder.join("bin").join(name);
            fs::write(&program, text)?;
            fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        }
        let daemon = |name: &'static str, more: Vec<OsString>| {
            let (tree, folder) = (tree.clone(), folder.clone());
            Box::new(move || {
                let mut command = Command::new(tree.join("usr/sbin").join(name));
                command.arg("-D").arg("-f").arg(folder.join("slurm.conf")).args(&more);
                command.env("LD_LIBRARY_PATH", libraries(&tree)).env("SLURM_CONF", folder.join("slurm.conf"));
                command.stdout(Stdio::null()).stderr(log_file(&folder.join("log")));
                command
            })
        };
        let controller = Server::start("slurmctld", ports.0, daemon("slurmctld-wlm", Vec::new()))?;
        let step = tree.join("usr/sbin/slurmstepd-wlm").into_os_string();
        let more = vec![OsString::from("-N"), hostname()?.into(), OsString::from("-d"), step];
        let node = Server::start("slurmd", ports.1, daemon("slurmd-wlm", more))?;
        Ok(Some(Cluster { controller, node, _keys: keys, rest }))
    }

    /// The environment in which Slurm's commands find this cluster.
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        let folder = self.rest.0.path();
        let mut path = folder.join("bin").into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        vec![("PATH".into(), path), ("SLURM_CONF".into(), folder.join("slurm.conf").into())]
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        // Steps of jobs live on without their daemon.
        let word = self.0.path().join("slurm.conf").into_os_string().into_encoded_bytes();
        let own = std::process::id();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(id) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            let mut bytes = Vec::new();
            let read = File::open(entry.path().join("environ"))
                .and_then(|file| file.take(1 << 20).read_to_end(&mut bytes));
            let step = fs::read_link(entry.path().join("exe")).is_ok_and(|exe| exe.starts_with(&self.1));
            let ours = read.is_ok() && bytes.windows(word.len()).any(|window| window == word);
            if id != own && (ours || step && bytes.is_empty()) && runs(id) {
                // SAFETY: kill takes plain numbers; the process was found a moment ago.
                unsafe { libc::kill(id as i32, libc::SIGKILL) };
            }
        }
    }
}

fn hostname() -> Result<String, Failed> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname")?;
    Ok(name.trim().split('.').next().unwrap_or_default().to_owned())
}

/// Starts munge, with a key of its own.
fn munge(tree: &Path, folder: &Path) -> Result<Munge, Failed> {
    let key = folder.join("munge.key");
    let mut bytes = vec![0; 1024];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    fs::write(&key, bytes)?;
    fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    let mut command = Command::new(tree.join("usr/sbin/munged"));
    command.args(["--foreground", "--force"]).env("LD_LIBRARY_PATH", libraries(tree));
    for (option, name) in
        [("key", "key"), ("socket", "socket"), ("pid", "pid"), ("log", "log"), ("seed", "seed")]
    {
        let option = if option == "socket" { "--socket=".to_owned() } else { format!("--{option}-file=") };
        let mut word = OsString::from(option);
        word.push(folder.join(format!("munge.{name}")));
        command.arg(word);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log_file(&folder.join("log")));
    kill_with_parent(&mut command);
    let mut child = Munge(command.spawn()?);
    let end = Instant::now() + STARTING;
    while !folder.join("munge.socket").exists() {
        if child.0.try_wait()?.is_some() || Instant::now() > end {
            let log = fs::read_to_string(folder.join("log")).unwrap_or_default();
            return Err(format!("munged does not start: {log}").into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(child)
}

fn configuration(tree: &Path, folder: &Path, ports: (u16, u16)) -> Result<String, Failed> {
    let (host, plugins) = (hostname()?, tree.join("usr/lib/x86_64-linux-gnu/slurm-wlm"));
    let (folder, plugins) = (folder.display(), plugins.display());
    let (controller, node) = ports;
    Ok(format!(
        "ClusterName=test\nSlurmctldHost={host}(127.0.0.1)\nSlurmUser=root\nSlurmdUser=root\n\
         AuthType=auth/munge\nAuthInfo=socket={folder}/munge.socket,cred_expire=5\nCredType=cred/munge\n\
         SlurmctldPort={controller}\nSlurmdPort={node}\nStateSaveLocation={folder}/state\n\
         SlurmdSpoolDir={folder}/spool\nSlurmctldPidFile={folder}/slurmctld.pid\n\
         SlurmdPidFile={folder}/slurmd.pid\nPluginDir={plugins}\nProctrackType=proctrack/linuxproc\n\
         TaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\n\
         AccountingStorageType=accounting_storage/none\nSelectType=select/cons_tres\n\
         SelectTypeParameters=CR_CPU\nMpiDefault=none\nReturnToService=2\nSlurmctldTimeout=30\n\
         SlurmdTimeout=30\nSlurmdParameters=config_overrides\n\
         NodeName={host} NodeAddr=127.0.0.1 CPUs=16 State=UNKNOWN\n\
         PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
    ))
}
