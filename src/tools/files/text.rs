//! The encoding of a text file. Pure.

use encoding_rs::{DecoderResult, Encoding, UTF_8, UTF_16BE, UTF_16LE};

/// The number of bytes at the start of a file by which its kind is found.
pub(super) const HEAD: usize = 8 * 1024;

/// The encoding of a text, and whether it begins with a byte order mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TextFormat {
    encoding: &'static Encoding,
    /// The length of the byte order mark.
    mark: usize,
}

impl TextFormat {
    /// Returns the format of a text whose first [`HEAD`] bytes are these.
    ///
    /// # Errors
    ///
    /// What the file is instead.
    pub(super) fn of(head: &[u8]) -> Result<Self, String> {
        if head.starts_with(&[0xff, 0xfe, 0, 0]) || head.starts_with(&[0, 0, 0xfe, 0xff]) {
            return Err("text in UTF-32, which these tools do not read".to_owned());
        }
        if let Some((encoding, mark)) = Encoding::for_bom(head) {
            return Ok(Self { encoding, mark });
        }
        let has_nul = head.contains(&0);
        // The last character may be cut. A text may begin like an image: with the letters `BM`, for example.
        let is_valid = std::str::from_utf8(head).map_or_else(|error| error.error_len().is_none(), |_| true);
        match infer::get(head) {
            _ if is_valid && !has_nul => Ok(Self { encoding: UTF_8, mark: 0 }),
            Some(kind) => Err(format!("no text ({})", kind.mime_type())),
            None if has_nul => Err("no text (it contains NUL bytes)".to_owned()),
            None => Ok(Self { encoding: UTF_8, mark: 0 }),
        }
    }

    /// A description, if it is not simply UTF-8.
    pub(super) fn description(self) -> Option<String> {
        (self.mark > 0).then(|| format!("{} with a byte order mark", self.encoding.name()))
    }

    /// Decodes a whole file.
    ///
    /// # Errors
    ///
    /// The place of the first byte that is not valid.
    pub(super) fn decode(self, bytes: &[u8]) -> Result<String, Invalid> {
        let (mut text, mut invalid) = (String::new(), None);
        Decoder::new(self).decode(&bytes[self.mark..], true, |piece| match piece {
            Piece::Text(piece) => text.push_str(piece),
            Piece::Invalid(byte) if invalid.is_none() => invalid = Some((byte, text.len())),
            Piece::Invalid(_) => {}
        });
        let Some((byte, before)) = invalid else { return Ok(text) };
        let line = 1 + memchr::memchr_iter(b'\n', &text.as_bytes()[..before]).count();
        Err(Invalid { byte, line, encoding: self.encoding.name() })
    }

    /// Encodes a text as the file was.
    pub(super) fn encode(self, text: &str) -> Vec<u8> {
        let units = || text.encode_utf16();
        match self.encoding {
            encoding if encoding == UTF_16LE => {
                [0xff, 0xfe].into_iter().chain(units().flat_map(u16::to_le_bytes)).collect()
            }
            encoding if encoding == UTF_16BE => {
                [0xfe, 0xff].into_iter().chain(units().flat_map(u16::to_be_bytes)).collect()
            }
            _ if self.mark > 0 => ["\u{feff}", text].concat().into_bytes(),
            _ => text.as_bytes().to_vec(),
        }
    }

    pub(super) fn mark(self) -> usize {
        self.mark
    }
}

/// The first place of a file at which it is not valid.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Invalid {
    /// The number of bytes before it.
    pub(super) byte: u64,
    /// The number of its line, from 1.
    pub(super) line: usize,
    pub(super) encoding: &'static str,
}

/// Decodes a file in pieces.
pub(super) struct Decoder {
    decoder: encoding_rs::Decoder,
    /// The number of bytes of the file so far.
    bytes: u64,
    decoded: String,
}

impl Decoder {
    pub(super) fn new(format: TextFormat) -> Self {
        let decoder = format.encoding.new_decoder_without_bom_handling();
        Self { decoder, bytes: format.mark as u64, decoded: String::new() }
    }

    /// Decodes the next bytes, and gives the parts in order.
    pub(super) fn decode(&mut self, mut bytes: &[u8], is_last: bool, mut part: impl FnMut(Piece<'_>)) {
        loop {
            self.decoded.clear();
            let room = self.decoder.max_utf8_buffer_length_without_replacement(bytes.len());
            self.decoded.reserve(room.unwrap_or(bytes.len()));
            let (result, read) = self.decoder.decode_to_string_without_replacement(bytes, &mut self.decoded, is_last);
            self.bytes += read as u64;
            bytes = &bytes[read..];
            part(Piece::Text(&self.decoded));
            match result {
                DecoderResult::InputEmpty => return,
                DecoderResult::OutputFull => {}
                DecoderResult::Malformed(length, after) => {
                    part(Piece::Invalid(self.bytes - u64::from(length) - u64::from(after)));
                }
            }
        }
    }
}

/// A part of a decoded file.
pub(super) enum Piece<'a> {
    Text(&'a str),
    /// Bytes that are not valid, after this number of bytes of the file.
    Invalid(u64),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_70_a_text_is_encoded_as_it_was() {
        let text = "one\r\n둘 𝄞\n";
        let utf_16 = |mark: [u8; 2], bytes: fn(u16) -> [u8; 2]| -> Vec<u8> {
            mark.into_iter().chain(text.encode_utf16().flat_map(bytes)).collect()
        };
        for bytes in [
            text.as_bytes().to_vec(),
            [b"\xef\xbb\xbf", text.as_bytes()].concat(),
            utf_16([0xff, 0xfe], u16::to_le_bytes),
            utf_16([0xfe, 0xff], u16::to_be_bytes),
        ] {
            let format = TextFormat::of(&bytes).unwrap();
            assert_eq!(format.decode(&bytes).unwrap(), text);
            assert_eq!(format.encode(text), bytes);
        }
    }

    #[test]
    fn fault_70_the_first_place_that_is_not_valid_is_found() {
        let check = |bytes: &[u8], byte, line| {
            let invalid = TextFormat::of(bytes).unwrap().decode(bytes).unwrap_err();
            assert_eq!((invalid.byte, invalid.line), (byte, line), "{bytes:?}");
        };
        check(b"caf\xe9\n", 3, 1);
        check(b"one\ntwo \xf0\x9f\x98", 8, 2);
        check(b"\xef\xbb\xbfa\xff", 4, 1);
        check(b"\xff\xfea\x00\x00\xd8", 4, 1);
        check(b"\xff\xfea\x00\n\x00\x00\xd8b\x00", 6, 2);
    }

    #[test]
    fn fault_70_what_is_no_text_is_named() {
        let check = |head: &[u8], expected: &str| assert_eq!(TextFormat::of(head).unwrap_err(), expected);
        check(b"\x89PNG\r\n\x1a\n....", "no text (image/png)");
        check(b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "no text (application/pdf)");
        check(b"BM\x46\0\0\0", "no text (image/bmp)");
        check(b"a\0b", "no text (it contains NUL bytes)");
        check(b"\xff\xfe\0\0a\0\0\0", "text in UTF-32, which these tools do not read");
        for text in [
            "",
            "BMW",
            "MZ",
            "ID3",
            "caf\u{e9}",
            "#!/bin/sh\n",
            "<?xml version=\"1.0\"?>",
            "<!DOCTYPE html><html>",
            "{}",
            "%!PS-Adobe",
        ] {
            assert_eq!(TextFormat::of(text.as_bytes()).map_err(|kind| (text, kind)).map(|it| it.mark), Ok(0));
        }
    }
}
