# Encodings that compilers and system code emit seldom; each must be read with
# the assembler's length.
	.text
endbr32
rdsspq %rax
incsspq %rax
saveprevssp
rstorssp (%rax)
wrssq %rax,(%rbx)
wrussq %rax,(%rbx)
setssbsy
clrssbsy (%rax)
notrack jmp *%rax
clwb (%rax)
clflushopt (%rax)
cldemote (%rax)
rdpid %rax
movdiri %rax,(%rbx)
movdir64b (%rax),%rbx
enqcmd (%rax),%rbx
tpause %eax
umwait %eax
umonitor %rax
ptwrite %rax
serialize
xsusldtrk
xresldtrk
wbnoinvd
clzero
monitorx
mwaitx
rdpru
rdpkru
wrpkru
rdtscp
xsavec (%rax)
xsaves (%rax)
xsaveopt (%rax)
xrstors (%rax)
rdrand %rax
rdseed %rax
rdfsbase %rax
wrgsbase %rax
invpcid (%rax),%rbx
gf2p8mulb %xmm0,%xmm1
gf2p8affineqb $1,%xmm0,%xmm1
sha1rnds4 $1,%xmm0,%xmm1
sha256rnds2 %xmm0,%xmm1,%xmm2
xbegin .
xend
xabort $1
xtest
xacquire lock addl $1,(%rax)
prefetchw (%rax)
prefetchwt1 (%rax)
extrq $1,$2,%xmm0
extrq %xmm1,%xmm0
insertq $1,$2,%xmm0,%xmm1
insertq %xmm0,%xmm1
movntsd %xmm0,(%rax)
vmfunc
vmcall
vmmcall
vmrun
ud0 %eax,%eax
ud1 %eax,%eax
int1
syscall
sysenter
hlt
lock cmpxchg16b (%rax)
enter $1,$2
lretq
lretq $4
iretq
movabs 0x1122334455667788,%al
movabs %rax,0x1122334455667788
addr32 movabs 0x11223344,%eax
xlat
in $1,%al
outsb
femms
pfadd %mm0,%mm1
pswapd (%rax),%mm1
vzeroall
vpermil2ps $0,%ymm0,%ymm1,%ymm2,%ymm3
vfmaddps %ymm0,%ymm1,%ymm2,%ymm3
vprotd $3,%xmm0,%xmm1
vprotd %xmm3,%xmm0,%xmm1
vpcmov %xmm0,%xmm1,%xmm2,%xmm3
vpperm %xmm0,%xmm1,%xmm2,%xmm3
vfrczps %xmm0,%xmm1
vphaddbw %xmm0,%xmm1
bextr $0x1234,%eax,%ebx
blcfill %eax,%ebx
t1mskc (%rax),%ebx
llwpcb %rax
lwpins $1,%eax,%ebx
vldmxcsr (%rax)
vmaskmovps (%rax),%ymm0,%ymm1
vtestps %ymm0,%ymm1
vpsrldq $3,%xmm0,%xmm1
{vex} vpdpbusd %ymm0,%ymm1,%ymm2
{vex} vpmadd52luq %ymm0,%ymm1,%ymm2
vpdpbssd %ymm0,%ymm1,%ymm2
vcvtneeph2ps (%rax),%ymm1
vbcstnebf162ps (%rax),%ymm1
cmpbexadd %eax,%ebx,(%rcx)
aadd %eax,(%rbx)
axor %rax,(%rbx)
kmovq %k1,%rax
kmovw (%rax),%k1
kmovb %k1,(%rax)
kortestq %k0,%k1
ktestw %k0,%k1
kandw %k1,%k2,%k3
kaddd %k1,%k2,%k3
kshiftlq $1,%k1,%k2
kshiftrb $1,%k1,%k2
kunpckbw %k1,%k2,%k3
vmovdqu64 %zmm0,0x40(%rax)
vmovdqu8 (%rax),%zmm1{%k1}{z}
vpaddd (%rax){1to16},%zmm1,%zmm2
vpternlogd $0xff,%zmm0,%zmm1,%zmm2
vpcmpub $0,%zmm0,%zmm1,%k1
vpmovqb %zmm0,(%rax)
vpmovm2d %k1,%zmm0
vpmovd2m %zmm0,%k1
vpmovusdb %zmm1,%xmm0
vgatherdps (%rax,%zmm1,4),%zmm2{%k1}
vscatterdps %zmm2,(%rax,%zmm1,4){%k1}
vgatherpf0dps (%rax,%zmm1,4){%k1}
vscatterpf1qpd (%rax,%zmm1,4){%k1}
vaddpd {rn-sae},%zmm0,%zmm1,%zmm2
vrndscaleps $1,%zmm0,%zmm1
vgetmantpd $1,%zmm0,%zmm1
vfixupimmps $1,%zmm0,%zmm1,%zmm2
vrangeps $1,%zmm0,%zmm1,%zmm2
vreduceps $1,%zmm0,%zmm1
vfpclassps $1,%zmm0,%k1
vdbpsadbw $1,%zmm0,%zmm1,%zmm2
vpermt2b %zmm0,%zmm1,%zmm2
vpmultishiftqb %zmm0,%zmm1,%zmm2
vpopcntb %zmm0,%zmm1
vpshldq $3,%zmm0,%zmm1,%zmm2
vpcompressb %zmm0,%zmm1
vpexpandw (%rax),%zmm1
vp2intersectd %zmm0,%zmm1,%k0
vcvtne2ps2bf16 %zmm0,%zmm1,%zmm2
vdpbf16ps %zmm0,%zmm1,%zmm2
v4fmaddps (%rax),%zmm0,%zmm1
vp4dpwssd (%rax),%zmm0,%zmm1
vexp2ps %zmm0,%zmm1
vrcp28pd %zmm0,%zmm1
vpconflictd %zmm0,%zmm1
vplzcntd %zmm0,%zmm1
vpscatterqq %zmm2,(%rax,%zmm1,8){%k1}
valignd $1,%zmm0,%zmm1,%zmm2
vblendmps %zmm0,%zmm1,%zmm2
vpbroadcastb %eax,%zmm0
vpbroadcastq %rax,%zmm0
vinserti32x8 $1,%ymm0,%zmm1,%zmm2
vextractf64x4 $1,%zmm0,(%rax)
vcvttpd2uqq %zmm0,%zmm1
vcvtuqq2pd %zmm0,%zmm1
vcvtusi2sd %rax,%xmm0,%xmm1
vscalefps %zmm0,%zmm1,%zmm2
vaddph %zmm0,%zmm1,%zmm2
vfmadd231ph %zmm0,%zmm1,%zmm2
vmovw %eax,%xmm0
vmovsh (%rax),%xmm0
vcmpph $1,%zmm0,%zmm1,%k1
vcvtph2psx %ymm0,%zmm1
vcvttsh2si %xmm0,%rax
vfcmaddcph %zmm0,%zmm1,%zmm2
vreduceph $1,%zmm0,%zmm1
vfpclassph $1,%zmm0,%k1
vgetmantsh $1,%xmm0,%xmm1,%xmm2
ldtilecfg (%rax)
sttilecfg (%rax)
tilerelease
tilezero %tmm0
tileloadd (%rax,%rbx),%tmm1
tilestored %tmm1,(%rax,%rbx)
tdpbssd %tmm0,%tmm1,%tmm2
tdpbf16ps %tmm0,%tmm1,%tmm2
tdpfp16ps %tmm0,%tmm1,%tmm2
clui
stui
uiret
testui
senduipi %rax
hreset $1
aesenc128kl (%rax),%xmm0
aesencwide128kl (%rax)
loadiwkey %xmm0,%xmm1
encodekey128 %eax,%ebx
wrmsrns
pconfig
enclu
getsec
tlbsync
invlpgb
stac
clac
monitor
mwait
skinit
fnstenv (%rax)
fcomi %st(1),%st
fisttpll (%rax)
fldl2e
ffreep %st(1)
bndmk (%rax),%bnd0
bndmov %bnd0,%bnd1
bndldx (%rax,%rbx),%bnd0
jrcxz .
addr32 jrcxz .
callw *%ax
ljmp *(%rax)
lcall *(%rax)
pushq %fs
popq %gs
movq %cr0,%rax
movq %rax,%cr8
movq %dr7,%rax
lss (%rax),%ebx
lfs (%rax),%ebx
sgdt (%rax)
invlpg (%rax)
verr %ax
lar %ax,%rbx
str %rax
smsw %eax
crc32b %al,%ebx
movbe %rax,(%rbx)
pextrw $1,%xmm0,(%rax)
insertps $1,%xmm0,%xmm1
maskmovdqu %xmm0,%xmm1
movntdqa (%rax),%xmm1
.byte 0x66,0x66,0x2e,0x0f,0x1f,0x84,0,0,0,0,0
.byte 0xf6,0xc8,0x01
.byte 0xf7,0xc8,1,0,0,0
.byte 0xd1,0xf0
.byte 0xc1,0xf0,1
.byte 0xf3,0x48,0x0f,0x1e,0xc8
.byte 0x0f,0x18,0xf8
.byte 0x0f,0x1c,0xc0
.byte 0xf2,0xc3
.byte 0x64,0x48,0x8b,0x04,0x25,0,0,0,0
.byte 0x66,0x48,0x8d,0x3d,0,0,0,0
.byte 0x48,0xff,0x25,0,0,0,0
xcryptecb
xstore
