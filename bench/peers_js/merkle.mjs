// Leaves per second of the two Merkle tree libraries people use for payouts, with root. usage: merkle.mjs oz|mtjs LEAVES
import { createHash } from 'node:crypto';
const [which, count] = [process.argv[2], Number(process.argv[3])];
const rows = Array.from({ length: count }, (_, i) => ['acct:' + String(i).padStart(9, '0'), String(1000000 + i * 7)]);
let took, root;
if (which === 'oz') {
  const { StandardMerkleTree } = await import('@openzeppelin/merkle-tree');
  const t0 = process.hrtime.bigint();
  root = StandardMerkleTree.of(rows, ['string', 'uint256']).root;
  took = Number(process.hrtime.bigint() - t0) / 1e9;
} else {
  const { MerkleTree } = await import('merkletreejs');
  const sha256 = (b) => createHash('sha256').update(b).digest();
  const t0 = process.hrtime.bigint();
  root = new MerkleTree(rows.map(([a, n]) => sha256(a + '\0' + n)), sha256).getHexRoot();
  took = Number(process.hrtime.bigint() - t0) / 1e9;
}
console.log(JSON.stringify({ seconds: took, per_s: count / took, root }));
