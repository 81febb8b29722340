//! The server: a device for the driver VM, behind a vfio-user socket.

mod access;
mod holds;
mod incoming;
mod irqs;
pub mod message;
mod requests;
mod serve;
#[cfg(any(test, feature = "talk"))]
mod talk;
#[cfg(test)]
mod tests;

use crate::counts::Counts;
use crate::device::{self, Device, QemuDevice};
use crate::error::{Context, Error, Result};
use crate::memory::Memory;
use crate::policy::Gate;
use crate::sys::{self, Event};
use guardrail_jail::Jail;
use serde::{Deserialize, Serialize};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

#[cfg(feature = "talk")]
pub use talk::converse;

/// The driver VM waits so much longer for an answer than the gate waits for the policy.
const MARGIN: Duration = Duration::from_secs(60);
/// How long the device may take to be cut off when the gate closes; then it is killed.
const CUT_LIMIT: Duration = Duration::from_secs(5);
/// The time limit for closing as a whole.
const CLOSE_LIMIT: Duration = Duration::from_secs(60);

/// The options of the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// The folder for the socket; it exists. The server removes its files there.
    pub folder: PathBuf,
    /// The driver VM's memory in MiB.
    pub memory_mib: u32,
    /// The longest time that an access may be held; then the gate closes.
    pub hold_limit: Duration,
    /// True where the driver VM's QEMU goes on after a write to the device's memory, and writes to memory and ports
    /// that are held are answered at once. They reach the device in order, and a read waits for all writes before it.
    /// Real buses do the same. If false, the guest waits for the policy at each write, and so does its QEMU, which
    /// then delivers no interrupts.
    pub post_writes: bool,
    /// The id of the device in the driver VM's QEMU, for the notice that it was unplugged.
    pub id: String,
    /// What the gate's process reaches besides the folder, for its policy. It also reaches what the device's QEMU
    /// does.
    pub reach: Jail,
    /// The model of the device and its back ends.
    pub device: device::Options,
}

/// State that the handle and the server's thread share.
#[derive(Debug)]
struct Shared {
    wake: Arc<Event>,
    /// Set before anything else, and read before each access.
    closed: AtomicBool,
    stop: AtomicBool,
    /// Set once the device has been cut off.
    cut: AtomicBool,
    counts: Mutex<Counts>,
    /// Why the gate cannot continue; `None` while it can.
    failure: Mutex<Option<String>>,
    /// A handle of the device's process, once it has started.
    device: Mutex<Option<sys::Killer>>,
}

impl Shared {
    fn new() -> Result<Shared> {
        Ok(Shared {
            wake: Arc::new(Event::new().context("make a counter")?),
            closed: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            cut: AtomicBool::new(false),
            counts: Mutex::default(),
            failure: Mutex::default(),
            device: Mutex::default(),
        })
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the gate: nothing passes from now on.
    fn close(&self, why: &str) {
        self.closed.store(true, Ordering::SeqCst);
        self.counts().contained.get_or_insert_with(|| why.to_owned());
    }

    fn fail(&self, error: &Error) {
        self.close(&error.to_string());
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert_with(|| error.to_string());
    }
}

/// Closes the gate at any end of the server's thread: nothing passes any more, because the device has ended
/// with the thread.
struct Shut<'a>(&'a Shared);

impl Drop for Shut<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.close("the gate broke");
        }
        self.0.closed.store(true, Ordering::SeqCst);
        self.0.cut.store(true, Ordering::SeqCst);
    }
}

/// A running gate; dropping it closes it and ends the device.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    arguments: Vec<String>,
    socket: PathBuf,
}

impl Server {
    /// Starts the server, with the guest's memory. The device's QEMU starts when the driver VM connects: its disk
    /// has to exist by then.
    pub fn start(options: Options, memory: Memory, gate: Arc<dyn Gate>) -> Result<Server> {
        let Options { device, memory_mib, folder, .. } = options.clone();
        let (identity, arguments) = (memory.identity()?, memory.qemu_arguments(memory_mib));
        let start = move |shared: &Shared| -> Result<QemuDevice> {
            let device = QemuDevice::start(&device, &memory, memory_mib, &folder)?;
            let killer = sys::Killer::of(device.process()).context("watch the device's process")?;
            *shared.device.lock().unwrap_or_else(PoisonError::into_inner) = Some(killer);
            Ok(device)
        };
        let mut server = Server::over(options, identity, gate, start, QemuDevice::stop)?;
        server.arguments.splice(..0, arguments);
        Ok(server)
    }

    /// Starts the server for a device of this process. Where the guest's memory is comes from
    /// [`Memory::identity`]. The options' model of a device is not used.
    pub fn of_device<D: Device + Send + 'static>(
        options: Options,
        memory: (u64, u64),
        gate: Arc<dyn Gate>,
        device: D,
    ) -> Result<Server> {
        Server::over(options, memory, gate, move |_| Ok(device), drop)
    }

    fn over<D: Device>(
        options: Options,
        memory: (u64, u64),
        gate: Arc<dyn Gate>,
        start: impl FnOnce(&Shared) -> Result<D> + Send + 'static,
        end: impl FnOnce(D) + Send + 'static,
    ) -> Result<Server> {
        let (listener, socket) = listen(&options.folder)?;
        let arguments = qemu_arguments(&options, &socket);
        let shared = Arc::new(Shared::new()?);
        let ours = Arc::clone(&shared);
        let run = move || {
            let _shut = Shut(&ours);
            serve::run(&ours, &listener, &options, &gate, memory, start, end);
        };
        let thread = std::thread::Builder::new().name("gate".into()).spawn(run).context("start a thread")?;
        Ok(Server { shared, thread: Some(thread), arguments, socket })
    }

    /// The arguments for the driver VM's QEMU: the device, and before it the memory that it shares with the device's
    /// QEMU. The caller adds no network, disk or sound of the device there.
    pub fn qemu_arguments(&self) -> Vec<String> {
        self.arguments.clone()
    }

    /// Closes the gate. From now on writes are dropped, reads return all ones, and no interrupt is delivered.
    /// The device can neither access the guest's memory nor receive anything from it. Returns when that
    /// holds.
    pub fn contain(&self, why: &str) -> Result<()> {
        self.shared.close(why);
        self.shared.wake.signal();
        let start = Instant::now();
        let mut killed = false;
        while !self.shared.cut.load(Ordering::SeqCst) {
            if start.elapsed() > CUT_LIMIT && !std::mem::replace(&mut killed, true) {
                // A dead device is cut off, and the server that waits for it continues.
                let device = self.shared.device.lock().unwrap_or_else(PoisonError::into_inner);
                device.iter().for_each(sys::Killer::kill);
            }
            if start.elapsed() > CLOSE_LIMIT {
                return Err(Error::Qemu {
                    what: format!("was not cut off within {} s", CLOSE_LIMIT.as_secs()),
                });
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Counts of what has passed, and what has not.
    pub fn counts(&self) -> Counts {
        self.shared.counts().clone()
    }

    /// Why the gate cannot continue; it is closed then. `None` while it can.
    pub fn failure(&self) -> Option<String> {
        self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The number of the device's process, once it has started.
    pub fn device_process(&self) -> Option<u32> {
        let device = self.shared.device.lock().unwrap_or_else(PoisonError::into_inner);
        device.as_ref().map(sys::Killer::process)
    }

    /// Ends the server and the device in order, and returns the final counts.
    pub fn stop(mut self) -> Counts {
        self.end();
        self.counts()
    }

    fn end(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.wake.signal();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.socket);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// The path of the socket, which exists until the driver VM has connected.
pub(crate) fn socket(folder: &Path) -> PathBuf {
    folder.join("gate.sock")
}

/// Listens on a socket in the folder.
fn listen(folder: &Path) -> Result<(UnixListener, PathBuf)> {
    let path = socket(folder);
    if path.as_os_str().len() > 107 {
        return Err(Error::LongPath { path });
    }
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).context("listen on the gate's socket")?;
    listener.set_nonblocking(true).context("listen on the gate's socket")?;
    Ok((listener, path))
}

fn qemu_arguments(options: &Options, socket: &Path) -> Vec<String> {
    let limit = (options.hold_limit + MARGIN).as_millis().min(u32::MAX.into()) as u64;
    let device = serde_json::json!({
        "driver": "vfio-user-pci",
        "id": options.id,
        "socket": { "type": "unix", "path": socket.display().to_string() },
        "x-no-posted-writes": !options.post_writes,
        "x-msg-timeout": limit,
    });
    vec!["-device".into(), device.to_string()]
}
