//! Synthetic USB devices, one for each plan: all are plugged in at once, below a controller of their own.

use crate::accesses::Accesses;
use crate::constants::Constants;
use guardrail_usb_device::{Counts, Descriptors, Device, serve};
use std::io::ErrorKind;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// The number of devices. The plans are in the order of how many drivers of Linux each adds.
pub const DEVICES: u64 = 12;
/// The ports of the controller, for each of USB 2 and 3.
const PORTS: u64 = 15;
/// How often a device that QEMU has not connected looks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(20);

/// Running devices.
pub(crate) struct Devices {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Counts>>,
    arguments: Vec<String>,
}

impl Devices {
    /// Starts the devices for an alias, with sockets in `folder`.
    pub(crate) fn start(alias: &str, folder: &Path, constants: &Constants) -> Result<Devices, String> {
        let controller = format!("qemu-xhci,id=synthetic,p2={PORTS},p3={PORTS}");
        let mut devices = Devices {
            stop: Arc::default(),
            threads: Vec::new(),
            arguments: vec!["-device".into(), controller],
        };
        for plan in 0..DEVICES {
            let descriptors = Descriptors::from_alias(alias, plan)
                .ok_or_else(|| format!("has no descriptors for the alias '{alias}'"))?;
            let device = Device::new(descriptors, plan).with_words(constants.all());
            let path = folder.join(format!("usb{plan}.sock"));
            let listener = UnixListener::bind(&path).and_then(|listener| {
                listener.set_nonblocking(true)?;
                Ok(listener)
            });
            let listener =
                listener.map_err(|error| format!("cannot listen on {}: {error}", path.display()))?;
            let stop = Arc::clone(&devices.stop);
            let thread = std::thread::Builder::new()
                .name(format!("usb{plan}"))
                .spawn(move || run(&listener, device, &stop))
                .map_err(|error| error.to_string())?;
            devices.threads.push(thread);
            let path = path.display().to_string().replace(',', ",,");
            devices.arguments.extend([
                "-chardev".into(),
                format!("socket,id=usb{plan},path={path}"),
                "-device".into(),
                format!("usb-redir,id=synthetic{plan},bus=synthetic.0,chardev=usb{plan}"),
            ]);
        }
        Ok(devices)
    }

    /// The arguments for the driver VM's QEMU.
    pub(crate) fn qemu_arguments(&self) -> Vec<String> {
        self.arguments.clone()
    }

    /// Ends the devices, and returns what passed to and from each.
    pub(crate) fn stop(self) -> Vec<Accesses> {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().filter_map(|thread| thread.join().ok()).map(Accesses::of_usb).collect()
    }
}

/// The life of a device: QEMU connects to it, and it serves until that ends.
fn run(listener: &UnixListener, mut device: Device, stop: &AtomicBool) -> Counts {
    while !stop.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((socket, _)) => {
                // What broke is in what the guest sees: the device is unplugged.
                return serve(socket, &mut device, stop).unwrap_or_else(|_| device.counts());
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(LOOK),
            Err(_) => break,
        }
    }
    device.counts()
}
