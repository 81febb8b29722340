//! Call stacks, of the kernel and its modules.

use super::guest::Guest;
use guardrail_client::kernel::KernelImage;
use guardrail_client::kernel::orc::{Frame, Unwinder};
use guardrail_client::kernel::slab::Layout;
use guardrail_client::trace::client::Module;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError, RwLock};

/// Bytes of a stack that are read at once.
const WINDOW: usize = 768;
/// Stacks are as large, and begin at multiples of it.
const STACK: u64 = 0x4000;
/// Entries of a module's table; no module has more.
const MAX_ENTRIES: u64 = 1 << 18;
/// Places in the table and sizes of its entries.
const PLACE: u64 = 4;
const ENTRY: u64 = 6;

/// Reads stacks.
pub struct Stack {
    kernel: Option<Unwinder>,
    /// Link-time range of the kernel's code.
    text: (u64, u64),
    slide: AtomicU64,
    modules: RwLock<Vec<Known>>,
    module_orc: Option<[u64; 3]>,
}

/// A module's rules, or none where they could not be read.
struct Known {
    module: Module,
    rules: Option<Option<Arc<Unwinder>>>,
}

/// The part of a stack that was read.
struct Window {
    at: u64,
    len: usize,
    bytes: [u8; WINDOW],
}

impl Window {
    fn read(guest: &mut impl Guest, at: u64) -> Window {
        let mut window = Window { at, len: 0, bytes: [0; WINDOW] };
        let len = WINDOW.min((STACK - at % STACK) as usize) & !7;
        if guest.fill(at, &mut window.bytes[..len]) {
            window.len = len;
        }
        window
    }

    fn word(&self, addr: u64) -> Option<u64> {
        let at = usize::try_from(addr.wrapping_sub(self.at)).ok()?;
        let bytes = self.bytes[..self.len].get(at..at.checked_add(8)?)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }
}

impl Stack {
    /// For the kernel of an image, whose text is in `text`.
    pub fn new(image: &KernelImage, layout: &Layout, text: (u64, u64)) -> Stack {
        Stack {
            kernel: Unwinder::of_image(image),
            text,
            slide: AtomicU64::new(0),
            modules: RwLock::default(),
            module_orc: layout.module_orc,
        }
    }

    /// Where KASLR put the kernel.
    pub fn set_slide(&self, slide: u64) {
        self.slide.store(slide, Relaxed);
    }

    /// A module has come.
    pub fn add(&self, module: &Module) {
        let mut modules = self.modules.write().unwrap_or_else(PoisonError::into_inner);
        modules.retain(|known| known.module.address != module.address);
        modules.push(Known { module: module.clone(), rules: None });
    }

    /// A module has gone.
    pub fn remove(&self, module: &Module) {
        let mut modules = self.modules.write().unwrap_or_else(PoisonError::into_inner);
        modules.retain(|known| known.module.address != module.address);
    }

    /// Who called the function that is at its first instruction, or about to return: the return addresses, the innermost first.
    pub fn callers_of_call(&self, guest: &mut impl Guest, sp: u64, bp: u64, out: &mut [u64]) -> usize {
        let window = Window::read(guest, sp);
        let Some(pc) = window.word(sp).filter(|pc| pc >> 63 != 0) else { return 0 };
        let Some((first, rest)) = out.split_first_mut() else { return 0 };
        *first = pc;
        let frame = Frame { pc, sp: sp.wrapping_add(8), bp, interrupted: false };
        self.follow(guest, &window, frame, rest) + 1
    }

    /// The callers of a frame, into `out`; how many. They are return addresses, or what was interrupted.
    pub fn callers(&self, guest: &mut impl Guest, frame: Frame, out: &mut [u64]) -> usize {
        let window = Window::read(guest, frame.sp);
        self.follow(guest, &window, frame, out)
    }

    fn follow(&self, guest: &mut impl Guest, window: &Window, frame: Frame, out: &mut [u64]) -> usize {
        let mut frame = frame;
        for (depth, out) in out.iter_mut().enumerate() {
            match self.caller(guest, window, &frame) {
                Some(caller) => frame = caller,
                None => return depth,
            }
            *out = frame.pc;
        }
        out.len()
    }

    fn caller(&self, guest: &mut impl Guest, window: &Window, frame: &Frame) -> Option<Frame> {
        let slide = self.slide.load(Relaxed);
        let link = frame.pc.wrapping_sub(slide);
        let mut word = |addr: u64| window.word(addr).or_else(|| guest.word(addr, 8));
        if link >= self.text.0 && link < self.text.1 {
            return self.kernel.as_ref()?.caller(frame, slide, &mut word);
        }
        let known = {
            let modules = self.modules.read().unwrap_or_else(PoisonError::into_inner);
            modules.iter().find(|known| known.module.contains(frame.pc))?.rules.clone()
        };
        match known {
            Some(rules) => rules?.caller(frame, 0, &mut word),
            None => self
                .read_rules(guest, frame.pc)?
                .caller(frame, 0, |addr| window.word(addr).or_else(|| guest.word(addr, 8))),
        }
    }

    /// Reads a module's tables when they are first needed.
    #[cold]
    fn read_rules(&self, guest: &mut impl Guest, pc: u64) -> Option<Arc<Unwinder>> {
        let mut modules = self.modules.write().unwrap_or_else(PoisonError::into_inner);
        let known = modules.iter_mut().find(|known| known.module.contains(pc))?;
        let rules = self.rules_of(guest, known.module.address).map(Arc::new);
        known.rules = Some(rules.clone());
        rules
    }

    fn rules_of(&self, guest: &mut impl Guest, module: u64) -> Option<Unwinder> {
        let [count, places, entries] = self.module_orc?;
        let count = guest.word(module.wrapping_add(count), 4).filter(|&count| count <= MAX_ENTRIES)?;
        let places_at = guest.word(module.wrapping_add(places), 8)?;
        let entries_at = guest.word(module.wrapping_add(entries), 8)?;
        let mut places = vec![0; (count * PLACE) as usize];
        let mut entries = vec![0; (count * ENTRY) as usize];
        if !guest.fill(places_at, &mut places) || !guest.fill(entries_at, &mut entries) {
            return None;
        }
        self.kernel.as_ref()?.of_module(places_at, &places, &entries)
    }
}
