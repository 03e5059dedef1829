// Foreign hands on our tokens: node peer.cjs LIB OP ARGS..., LIB is "v1" (macaroons.js) or "v2" (macaroon).
//   make KEY KID CAVEAT...     prints a token
//   narrow TOKEN CAVEAT...     prints a narrower one
//   verify KEY TOKEN           prints its caveats, one per line, or fails
//   third TOKEN                prints one with a third-party caveat (v1 only)
'use strict';
const path = require('path');
const { createRequire } = require('module');
const load = createRequire(path.resolve(process.env.PEER_MODULES) + path.sep);
const [lib, op, ...args] = process.argv.slice(2);

function v1() {
  const { MacaroonsBuilder, MacaroonsVerifier } = load('macaroons.js');
  const add = (m, caveats) =>
    caveats.reduce((b, c) => b.add_first_party_caveat(c), MacaroonsBuilder.modify(m)).getMacaroon();
  return {
    make: (key, kid, ...caveats) => add(MacaroonsBuilder.create('peer', key, kid), caveats).serialize(),
    narrow: (token, ...caveats) => add(MacaroonsBuilder.deserialize(token), caveats).serialize(),
    third: (token) => MacaroonsBuilder.modify(MacaroonsBuilder.deserialize(token))
      .add_third_party_caveat('elsewhere', 'a secret between the two of us..', 'ask them').getMacaroon().serialize(),
    verify: (key, token) => {
      const m = MacaroonsBuilder.deserialize(token);
      const seen = [];
      const v = new MacaroonsVerifier(m).satisfyGeneral((c) => seen.push(c) > 0);
      v.assertIsValid(key);
      return seen.join('\n');
    },
  };
}

// Its buffer doubles on every append, so only tokens of few and short parts can be written: no location, three caveats.
function v2() {
  const macaroon = load('macaroon');
  const bytes = (text) => Buffer.from(text, 'utf8');
  const text = (m) => Buffer.from(m.exportBinary()).toString('base64url');
  const add = (m, caveats) => { caveats.forEach((c) => m.addFirstPartyCaveat(bytes(c))); return m; };
  return {
    make: (key, kid, ...caveats) =>
      text(add(macaroon.newMacaroon({ identifier: bytes(kid), rootKey: bytes(key), version: 2 }), caveats)),
    narrow: (token, ...caveats) => text(add(macaroon.importMacaroon(token), caveats)),
    verify: (key, token) => {
      const seen = [];
      macaroon.importMacaroon(token).verify(bytes(key), (c) => { seen.push(c); return null; }, []);
      return seen.join('\n');
    },
  };
}

process.stdout.write((lib === 'v1' ? v1() : v2())[op](...args) + '\n');
