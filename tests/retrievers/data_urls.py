"""URLs that a fetcher inside a network must refuse, grouped by trick."""

ADDRESSES = """
    127.0.0.1 127.0.0.2 127.255.255.254 0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.100.100.200
    169.254.169.254 169.254.170.2 169.254.0.23 168.63.129.16 172.16.0.1 172.31.255.254 192.168.0.1 192.168.255.255
    192.0.0.192 192.0.0.1 192.0.2.1 198.18.0.1 198.51.100.7 203.0.113.9 192.88.99.1 224.0.0.1 239.255.255.250
    240.0.0.1 255.255.255.255
    [::] [::1] [0:0:0:0:0:0:0:1] [::127.0.0.1] [::ffff:127.0.0.1] [::FFFF:7F00:1] [::ffff:169.254.169.254]
    [::ffff:0:127.0.0.1] [::ffff:10.0.0.1] [::ffff:192.168.1.1] [64:ff9b::127.0.0.1] [64:ff9b::a9fe:a9fe]
    [64:ff9b:1::1] [64:ff9b:1:a9fe:a9:fe00::] [2002:7f00:1::] [2002:a9fe:a9fe::1] [2002:c0a8:1::]
    [2001:0:7f00:1::] [2001:0:808:808::80ff:fffe] [2001:db8::1] [3fff::1] [2001:2::1] [100::1]
    [fc00::1] [fd00:ec2::254] [fd20:ce::254] [fe80::1] [fec0::1] [ff02::1] [ff0e::fb] [5f00::1] [4000::1]
    [2606:4700::5efe:127.0.0.1] [2606:4700::200:5efe:10.0.0.1]
""".split()
ODD_ADDRESSES = """
    127.1 127.0.1 0 0.0 1 2130706433 3232235777 2852039166 0x7f000001 0x7f.1 0x7f.0.0.1 0x7F.0x0.0x0.0x1 0X7F000001
    0177.0.0.1 0177.1 017700000001 00000177.0.0.1 127.0.0.01 127.00.0.1 127.0.0.0x1 0xa9fea9fe 0251.0376.0251.0376
    169.254.43518 127.0.0.1.1 127.0.0.256 256.256.256.256 4294967297 127.0.0.1. 127.0.0.1.. 127..0.1 .127.0.0.1
    １２７.0.0.1 ①②⑦.⓪.⓪.① 127。0。0。1 127．0．0．1 127｡0｡0｡1 𝟏𝟐𝟕.𝟎.𝟎.𝟏 ١٢٧.٠.٠.١ １２７．１
    ２１３０７０６４３３ 0ｘ7f.1 ８.８.８.８
    %31%32%37.0.0.1 127%2e0.0.1 127.0.0.1%00.public.example 127.0.0.1%20
    [::1%lo] [::1%25lo] [fe80::1%eth0] [fe80::1%25eth0] [2606:4700::1%1] [::1 [127.0.0.1] [::ffff:127.1] [::ffff:0x7f.1]
    [v1.127.0.0.1] [] [:] [::1]] [[::1]] ::1 [localhost] [::1].public.example
""".split()
NAMES = [
    *"""
    localhost LOCALHOST LocalHost ｌocalhost loc%61lhost localhost. localhost.. a.localhost a.b.LOCALHOST
    localhost.localdomain
    printer.local printer.LOCAL metadata.google.internal metadata.google.internal. instance-data metadata metadata.
    router.lan nas.home files.corp wiki.intranet db.private router.home.arpa x.onion no.invalid
    kubernetes.default.svc redis.cache.svc.cluster.local intranet ⓛⓞⓒⓐⓛⓗⓞⓢⓣ ʟocalhost
    public..example .public.example public.example. public.example.. pub*lic.example public.example,127.0.0.1
    public!.example pub'lic.example $(id).example -.- 。 xn--a\u0300.example
""".split(),
    *("a" * 64 + ".example", ".".join(["a" * 60] * 5)),
]
OTHERS = [
    *("", " ", "127.0.0.1", "localhost:80", "//127.0.0.1/", "/etc/passwd", "public.example", "http:", "http:/", "http://"),
    *("http:///", "http:127.0.0.1", "http:/127.0.0.1/", "http:///127.0.0.1/", "http:////127.0.0.1", "://127.0.0.1"),
    *("http://?@127.0.0.1/", "http://#127.0.0.1", "http://:80/", "https://"),
    *("file:///etc/passwd", "file://127.0.0.1/etc/passwd", "ftp://public.example/", "gopher://127.0.0.1:80/_GET"),
    *("dict://127.0.0.1:80/", "ldap://127.0.0.1/", "ws://public.example/", "jar:http://127.0.0.1!/"),
    *("data:text/html,x", "file:/etc/passwd"),
    *("javascript:alert(1)", "about:blank", "unix:///var/run/docker.sock", "http+unix://%2Fvar%2Frun/x"),
    *("view-source:http://public.example/", "http+unix:/var/run/x"),
    *("httpx://public.example", "HTTPS1://public.example/", "ｈttp://public.example/", "netdoc:///etc/passwd"),
    *("http://user@public.example/", "http://user:pass@public.example/", "http://@public.example/", "http://:@127.0.0.1/"),
    *("http://public.example@127.0.0.1/", "http://public.example:80@127.0.0.1/", "http://127.0.0.1@public.example/"),
    *("http://a@b@public.example/", "http://public.example%40127.0.0.1/", "http://public.example＠127.0.0.1/"),
    *("http://public.example:22/", "http://public.example:8080/", "https://public.example:6379/", "http://public.example:0/"),
    *("http://public.example:65536/", "http://public.example:-80/", "http://public.example:080/", "http://public.example:８０/"),
    *("http://public.example:80:80/", "http://public.example:80a/", "http://public.example:http/", "http://public.example:+80/"),
    *("http://public.example\\@127.0.0.1/", "http:\\\\127.0.0.1\\", "http://127.0.0.1\\.public.example/"),
    *("http:/\\127.0.0.1", "/\\127.0.0.1"),
    *(" http://public.example/", "http://public.example/ ", "http://public.example /", "http:// public.example/"),
    *("\thttp://public.example/", "http://public.example\t/"),
    *("http://public.example/\n", "http://public.example/\r\nHost: x", "http://public.example\r\n/", "ht\ntp://127.0.0.1/"),
    *("http://public.example/\0", "http://public.example\0.evil.example/", "http://127.0.0.1\0/", "http://public.example/\x7f"),
    *("http://public.example/\u2028", "http://public.example/\u00a0", "http://pub\u00adlic.example/", "http://127.0.0\u200b.1/"),
    *("http://public.example/\u3000x", "http://\u202epublic.example/", "\ufeffhttp://public.example/", "http://public.example/\ud800"),
    "http://public.example/" + "a" * 2_000,
]  # fmt: skip
FORBIDDEN = [
    *(f"http://{host}/" for host in ADDRESSES + ODD_ADDRESSES + NAMES),
    *(f"https://{host}/x?y" for host in ADDRESSES[::7] + ODD_ADDRESSES[::7] + NAMES[::7]),
    *(f"http://{host}:80/" for host in ADDRESSES[::9]),
    *OTHERS,
]
