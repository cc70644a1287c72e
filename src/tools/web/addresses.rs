//! The addresses that may be reached: [`Addresses`]. Public ones, and those that the program grants.
//!
//! Nothing here resolves a name or connects.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The addresses that may be reached. Default: those that are public.
#[derive(Clone, Debug, Default)]
pub(super) struct Addresses {
    granted: Vec<Network>,
}

impl Addresses {
    pub(super) fn grant(&mut self, network: Network) {
        self.granted.push(network);
    }

    /// Returns whether the address may be reached. An IPv4 address that is written as an IPv6 one is granted like the
    /// IPv4 address itself, but never public.
    pub(super) fn permit(&self, address: IpAddr) -> bool {
        let canonical = address.to_canonical();
        is_public(address) || self.granted.iter().any(|network| network.contains(canonical))
    }
}

/// An address with a prefix length: all addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    pub(super) const fn new(address: IpAddr, prefix: u8) -> Self {
        Self { address, prefix }
    }

    fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let differing = network.to_bits() ^ address.to_bits();
                differing.leading_zeros() >= u32::from(self.prefix.min(32))
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let differing = network.to_bits() ^ address.to_bits();
                differing.leading_zeros() >= u32::from(self.prefix.min(128))
            }
            _ => false,
        }
    }
}

/// The addresses of this machine.
pub(super) const LOOPBACK: [Network; 2] = [v4([127, 0, 0, 0], 8), v6([0, 0, 0, 0, 0, 0, 0, 1], 128)];

/// Returns whether an address is public: global unicast, without a special purpose, and with no other address in it.
fn is_public(address: IpAddr) -> bool {
    let is_candidate = match address {
        IpAddr::V4(_) => true,
        IpAddr::V6(_) => GLOBAL_UNICAST.contains(address),
    };
    is_candidate && !SPECIAL.iter().any(|network| network.contains(address))
}

/// All public IPv6 addresses are in here, see <https://www.iana.org/assignments/ipv6-address-space>. Outside of it are
/// the loopback and unspecified addresses, `::/96` and `::ffff:0:0/96` with IPv4 addresses in them, `64:ff9b::/96` and
/// `64:ff9b:1::/48` (NAT64), `100::/64` (discard), `5f00::/16` (segment routing), `fc00::/7` (private), `fe80::/10`
/// (link-local), `fec0::/10` (site-local) and `ff00::/8` (multicast).
const GLOBAL_UNICAST: Network = v6([0x2000, 0, 0, 0, 0, 0, 0, 0], 3);

/// The ranges with a special purpose, from <https://www.iana.org/assignments/iana-ipv4-special-registry> and
/// <https://www.iana.org/assignments/iana-ipv6-special-registry> of 2025. The few addresses in `192.0.0.0/24` and
/// `2001::/23` that are public lead to no web server.
const SPECIAL: [Network; 20] = [
    // This network.
    v4([0, 0, 0, 0], 8),
    // Private.
    v4([10, 0, 0, 0], 8),
    // Shared by the customers of a carrier.
    v4([100, 64, 0, 0], 10),
    // Loopback.
    v4([127, 0, 0, 0], 8),
    // Link-local, with the metadata services of clouds.
    v4([169, 254, 0, 0], 16),
    // Private.
    v4([172, 16, 0, 0], 12),
    // Protocol assignments.
    v4([192, 0, 0, 0], 24),
    // Documentation.
    v4([192, 0, 2, 0], 24),
    // Relays to IPv6, deprecated.
    v4([192, 88, 99, 0], 24),
    // Private.
    v4([192, 168, 0, 0], 16),
    // Benchmarks.
    v4([198, 18, 0, 0], 15),
    // Documentation.
    v4([198, 51, 100, 0], 24),
    v4([203, 0, 113, 0], 24),
    // Multicast.
    v4([224, 0, 0, 0], 4),
    // Reserved, with the broadcast address.
    v4([240, 0, 0, 0], 4),
    // Protocol assignments, with Teredo (an IPv4 address in it), benchmarks and hashes.
    v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23),
    // Documentation.
    v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32),
    // 6to4, with an IPv4 address in it.
    v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16),
    // A test network of the past, given back.
    v6([0x3ffe, 0, 0, 0, 0, 0, 0, 0], 16),
    // Documentation.
    v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20),
];

const fn v4([a, b, c, d]: [u8; 4], prefix: u8) -> Network {
    Network::new(IpAddr::V4(Ipv4Addr::new(a, b, c, d)), prefix)
}

const fn v6([a, b, c, d, e, f, g, h]: [u16; 8], prefix: u8) -> Network {
    Network::new(IpAddr::V6(Ipv6Addr::new(a, b, c, d, e, f, g, h)), prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permits(address: &str) -> bool {
        Addresses::default().permit(address.parse().unwrap())
    }

    /// A range is closed from its first to its last address; its neighbours are what they are.
    #[track_caller]
    fn closed(range: [&str; 2], [before, after]: [Option<(&str, bool)>; 2]) {
        for address in range {
            assert!(!permits(address), "{address} of {range:?}");
        }
        for (address, is_open) in before.into_iter().chain(after) {
            assert_eq!(permits(address), is_open, "{address} beside {range:?}");
        }
    }

    #[test]
    fn fault_91_every_special_ipv4_range_is_closed_and_ends_where_it_ends() {
        let open = |address| Some((address, true));
        closed(["0.0.0.0", "0.255.255.255"], [None, open("1.0.0.0")]);
        closed(["10.0.0.0", "10.255.255.255"], [open("9.255.255.255"), open("11.0.0.0")]);
        closed(["100.64.0.0", "100.127.255.255"], [open("100.63.255.255"), open("100.128.0.0")]);
        closed(["127.0.0.0", "127.255.255.255"], [open("126.255.255.255"), open("128.0.0.0")]);
        closed(["169.254.0.0", "169.254.255.255"], [open("169.253.255.255"), open("169.255.0.0")]);
        closed(["172.16.0.0", "172.31.255.255"], [open("172.15.255.255"), open("172.32.0.0")]);
        closed(["192.0.0.0", "192.0.0.255"], [open("191.255.255.255"), open("192.0.1.0")]);
        closed(["192.0.2.0", "192.0.2.255"], [open("192.0.1.255"), open("192.0.3.0")]);
        closed(["192.88.99.0", "192.88.99.255"], [open("192.88.98.255"), open("192.88.100.0")]);
        closed(["192.168.0.0", "192.168.255.255"], [open("192.167.255.255"), open("192.169.0.0")]);
        closed(["198.18.0.0", "198.19.255.255"], [open("198.17.255.255"), open("198.20.0.0")]);
        closed(["198.51.100.0", "198.51.100.255"], [open("198.51.99.255"), open("198.51.101.0")]);
        closed(["203.0.113.0", "203.0.113.255"], [open("203.0.112.255"), open("203.0.114.0")]);
        closed(["224.0.0.0", "239.255.255.255"], [open("223.255.255.255"), Some(("240.0.0.0", false))]);
        closed(["240.0.0.0", "255.255.255.255"], [None, None]);
    }

    #[test]
    fn fault_91_every_special_ipv6_range_is_closed_and_ends_where_it_ends() {
        let open = |address| Some((address, true));
        let shut = |address| Some((address, false));
        // Below and above the global addresses.
        closed(["::", "1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"], [None, open("2000::")]);
        closed(["4000::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"], [None, None]);
        closed(["2001::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff"], [open("2000:ffff::"), open("2001:200::")]);
        closed(["2001::", "2001:0:ffff:ffff:ffff:ffff:ffff:ffff"], [None, shut("2001:1::")]);
        closed(["2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"], [open("2001:db7::"), open("2001:db9::")]);
        closed(["2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff"], [open("2001:ffff::"), open("2003::")]);
        closed(["3ffe::", "3ffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff"], [open("3ffd:ffff::"), shut("3fff::")]);
        closed(["3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff"], [None, open("3fff:1000::")]);
        for address in [
            "::1",
            "::8.8.8.8",
            "::ffff:0.0.0.0",
            "::ffff:8.8.8.8",
            "::ffff:127.0.0.1",
            "::ffff:0:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "64:ff9b::ffff:ffff",
            "64:ff9b:1::8.8.8.8",
            "100::1",
            "2001::1",
            "2002:7f00:1::",
            "5f00::1",
            "fc00::1",
            "fdff:ffff::1",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "feff::1",
            "ff02::1",
        ] {
            assert!(!permits(address), "{address}");
        }
        for address in ["8.8.8.8", "93.184.216.34", "2606:4700:4700::1111", "2a00:1450:4001::200e"] {
            assert!(permits(address), "{address}");
        }
    }

    #[test]
    fn a_grant_opens_its_network_and_nothing_beside_it() {
        let mut addresses = Addresses::default();
        addresses.grant(Network::new([10, 1, 0, 0].into(), 16));
        addresses.grant(Network::new("fd00::7".parse().unwrap(), 200));
        let permits = |address: &str| addresses.permit(address.parse().unwrap());
        assert!(permits("10.1.0.0") && permits("10.1.255.255") && permits("::ffff:10.1.2.3") && permits("fd00::7"));
        assert!(!permits("10.0.255.255") && !permits("10.2.0.0") && !permits("fd00::8") && !permits("127.0.0.1"));

        let mut addresses = Addresses::default();
        LOOPBACK.into_iter().for_each(|network| addresses.grant(network));
        let permits = |address: &str| addresses.permit(address.parse().unwrap());
        assert!(permits("127.9.9.9") && permits("::1") && permits("::ffff:127.0.0.1"));
        assert!(!permits("0.0.0.0") && !permits("::") && !permits("::2") && !permits("10.0.0.1"));
    }
}
