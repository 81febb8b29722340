//! Formats of the kernel's `printf`: which arguments they read (`format_decode` in `lib/vsprintf.c`).

/// What a conversion reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argument<'a> {
    /// The conversion up to where it names the argument, in ASCII: `%-8lx`, or `%.*` for a precision.
    pub conversion: &'a [u8],
    /// How many bytes of the argument count, 1 to 8. The kernel takes no more of a number that was widened to an `int`.
    pub bytes: u8,
    /// Whether it is an address.
    pub pointer: bool,
}

/// The first `most` arguments that a format reads, in their order. The format has no zero at its end.
/// A conversion that the kernel does not know ends the format, as it does in the kernel.
pub fn arguments(format: &[u8], most: usize) -> Vec<Argument<'_>> {
    let mut reader = Reader { format, start: 0, at: 0, found: Vec::new() };
    while reader.found.len() < most && reader.conversion().is_some() {}
    reader.found.truncate(most);
    reader.found
}

struct Reader<'a> {
    format: &'a [u8],
    /// Where the conversion begins.
    start: usize,
    at: usize,
    found: Vec<Argument<'a>>,
}

impl Reader<'_> {
    /// The byte that comes next; 0 at the end.
    fn peek(&self) -> u8 {
        self.format.get(self.at).copied().unwrap_or(0)
    }

    fn skip(&mut self, is_wanted: impl Fn(u8) -> bool) {
        while self.at < self.format.len() && is_wanted(self.peek()) {
            self.at += 1;
        }
    }

    /// Adds an argument of the conversion that ends here.
    fn reads(&mut self, bytes: u8, pointer: bool) {
        let conversion = self.format.get(self.start..self.at).unwrap_or_default();
        self.found.push(Argument { conversion, bytes, pointer });
    }

    /// A width or a precision: digits, or an argument.
    fn count(&mut self) {
        if self.peek() == b'*' {
            self.at += 1;
            self.reads(4, false);
        } else {
            self.skip(|byte| byte.is_ascii_digit());
        }
    }

    /// Reads the next conversion; `None` where the format ends.
    fn conversion(&mut self) -> Option<()> {
        self.skip(|byte| byte != b'%');
        self.start = self.at;
        self.at += 1;
        self.skip(|byte| b"-+ #0".contains(&byte));
        self.count();
        if self.peek() == b'.' {
            self.at += 1;
            self.count();
        }
        let bytes = self.qualifier();
        let letter = self.peek();
        self.at += 1;
        match letter {
            b'%' => {}
            b'c' => self.reads(1, false),
            b's' | b'p' => self.reads(8, true),
            b'd' | b'i' | b'o' | b'u' | b'x' | b'X' => self.reads(bytes, false),
            _ => return None,
        }
        Some(())
    }

    /// The bytes of a number, by what stands before its letter.
    fn qualifier(&mut self) -> u8 {
        let first = self.peek();
        if !matches!(first, b'h' | b'l' | b'L' | b'z' | b't') {
            return 4;
        }
        self.at += 1;
        let twice = matches!(first, b'h' | b'l') && self.peek() == first;
        self.at += usize::from(twice);
        match (first, twice) {
            (b'h', true) => 1,
            (b'h', false) => 2,
            _ => 8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The arguments of a format as words: conversion, bytes, and `*` for an address.
    fn read(format: &str) -> Vec<String> {
        let word = |a: &Argument<'_>| {
            let star = if a.pointer { "*" } else { "" };
            format!("{} {}{star}", String::from_utf8_lossy(a.conversion), a.bytes)
        };
        arguments(format.as_bytes(), 16).iter().map(word).collect()
    }

    #[test]
    fn numbers_have_the_bytes_of_their_types() {
        assert_eq!(read("%d %i %u %o %x %X"), ["%d 4", "%i 4", "%u 4", "%o 4", "%x 4", "%X 4"]);
        assert_eq!(
            read("%hhx%hd%ld%lld%Lu%zu%td"),
            ["%hhx 1", "%hd 2", "%ld 8", "%lld 8", "%Lu 8", "%zu 8", "%td 8"]
        );
        assert_eq!(read("%c"), ["%c 1"]);
    }

    #[test]
    fn flags_widths_and_precisions_belong_to_their_conversion() {
        assert_eq!(
            read("\u{1}3%s: %-8s%#010lx%+ d%08.3llx"),
            ["%s 8*", "%-8s 8*", "%#010lx 8", "%+ d 4", "%08.3llx 8"]
        );
    }

    #[test]
    fn widths_and_precisions_may_be_arguments() {
        assert_eq!(read("%*d"), ["%* 4", "%*d 4"]);
        assert_eq!(read("%.*s"), ["%.* 4", "%.*s 8*"]);
        assert_eq!(read("%-*.*lx|%*ph"), ["%-* 4", "%-*.* 4", "%-*.*lx 8", "%* 4", "%*p 8*"]);
    }

    #[test]
    fn an_address_has_one_argument_whatever_is_printed_of_it() {
        assert_eq!(read("%p %pM%pOFn %pI4:%d"), ["%p 8*", "%p 8*", "%p 8*", "%p 8*", "%d 4"]);
    }

    #[test]
    fn a_percent_sign_reads_nothing() {
        assert_eq!(read("100%% of %d%%"), ["%d 4"]);
        assert_eq!(read("none"), [""; 0]);
    }

    #[test]
    fn what_the_kernel_does_not_know_ends_the_format() {
        assert_eq!(read("%d %n %d"), ["%d 4"]);
        assert_eq!(read("%d %zzd %d"), ["%d 4"]);
        for format in ["%d %", "%d %l", "%d %5.", "%d %-"] {
            assert_eq!(read(format), ["%d 4"], "{format}");
        }
    }

    #[test]
    fn no_more_arguments_than_are_wanted() {
        assert_eq!(arguments(&b"%*.*d".repeat(100), 16).len(), 16);
        assert!(arguments(b"%*.*d", 0).is_empty());
    }
}
