//! The words of subject lines: prefixes of subsystems, and kinds of findings.

/// Folders of the kernel's source, and the prefix that subjects about them have besides the driver's name.
/// Network drivers have none.
const PREFIXES: [(&str, &str); 15] = [
    ("drivers/scsi/", "scsi: "),
    ("drivers/message/fusion/", "scsi: "),
    ("drivers/usb/", "usb: "),
    ("drivers/i2c/", "i2c: "),
    ("drivers/mmc/", "mmc: "),
    ("drivers/ata/", "ata: "),
    ("drivers/hid/", "HID: "),
    ("drivers/input/", "Input: "),
    ("drivers/watchdog/", "watchdog: "),
    ("drivers/char/hw_random/", "hwrng: "),
    ("drivers/char/ipmi/", "ipmi: "),
    ("drivers/gpu/drm/", "drm/"),
    ("drivers/net/can/", "can: "),
    ("drivers/net/wireless/", "wifi: "),
    ("sound/", "ALSA: "),
];

/// The prefix of the subsystem whose source the file is; empty where it has none, or is not the kernel's.
pub fn prefix(file: &str) -> &'static str {
    let within = |folder: &str| file.starts_with(folder) || file.contains(&format!("/{folder}"));
    PREFIXES.iter().find(|(folder, _)| within(folder)).map_or("", |(_, prefix)| prefix)
}

/// The kind in the words of the lists, such as `data race`.
pub fn in_words(kind: &str) -> String {
    match kind {
        // These are written with hyphens.
        "use-after-free" | "double-free" | "out-of-bounds" => kind.to_owned(),
        "uninit-branch" => "branch on an uninitialized value".to_owned(),
        "uninit-address" => "address from an uninitialized value".to_owned(),
        _ => match kind.strip_prefix("dma-") {
            Some(rest) => format!("DMA {}", in_words(rest)),
            None => kind.replace('-', " "),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_have_the_prefix_of_their_list() {
        for (file, wanted) in [
            ("linux/drivers/scsi/sym53c8xx_2/sym_hipd.c", "scsi: "),
            ("drivers/message/fusion/mptsas.c", "scsi: "),
            ("sound/pci/ens1370.c", "ALSA: "),
            ("drivers/net/ethernet/realtek/8139cp.c", ""),
            ("/home/me/drivers-of-mine/mysound/x.c", ""),
        ] {
            assert_eq!(prefix(file), wanted, "{file}");
        }
    }

    #[test]
    fn kinds_are_words() {
        let words = ["data-race", "dma-use-after-free", "use-after-free", "dma-leak"].map(in_words);
        assert_eq!(words, ["data race", "DMA use-after-free", "use-after-free", "DMA leak"]);
    }
}
