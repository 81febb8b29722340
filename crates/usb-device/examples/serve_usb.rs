//! Serves a synthetic USB device on a socket: `serve_usb ALIAS PLAN SOCKET [WORD...]`.
//!
//! QEMU connects with `-chardev socket,id=usb0,path=SOCKET -device qemu-xhci -device usb-redir,chardev=usb0`.

use guardrail_usb_device::{Descriptors, Device, serve};
use std::error::Error;
use std::os::unix::net::UnixListener;
use std::sync::atomic::AtomicBool;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [alias, plan, path, words @ ..] = &arguments[..] else {
        return Err("usage: serve_usb ALIAS PLAN SOCKET [WORD...]".into());
    };
    let plan: u64 = plan.parse()?;
    let descriptors = Descriptors::from_alias(alias, plan).ok_or("ALIAS is no alias of a USB driver")?;
    let words: Vec<u32> = words.iter().map(|word| word.parse()).collect::<Result<_, _>>()?;
    let mut device = Device::new(descriptors, plan).with_words(&words);
    let listener = UnixListener::bind(path)?;
    let (socket, _) = listener.accept()?;
    println!("{}", serve(socket, &mut device, &AtomicBool::new(false))?);
    Ok(())
}
