// How s2_pmtiles_{plain,gzip}.pmtiles.gz were made: node s2_pmtiles.mjs OUT 4 1|2, with npm's s2-pmtiles 1.1.2, then gzip -9n.
// That writer fills only two of the seven bytes of the magic ("PM", then zeros); the rest was put in by hand:
//   printf PMTiles | dd of=OUT conv=notrunc
import { writeFileSync } from "node:fs";
import { BufferWriter, S2PMTilesWriter } from "s2-pmtiles";

const [file, zooms, compression] = process.argv.slice(2);
const out = new BufferWriter();
const writer = new S2PMTilesWriter(out, 1, Number(compression)); // vector tiles; 1: as they are, 2: gzip
for (let z = 0; z <= Number(zooms); z++)
  for (let x = 0; x < 2 ** z; x++)
    for (let y = 0; y < 2 ** z; y++)
      if ((z + x + y) % 11 != 10) await writer.writeTileXYZ(z, x, y, Buffer.from((x + y) % 7 ? `tile ${z}/${x}/${y}` : "sea"));
await writer.commit({ name: "by s2-pmtiles", minzoom: 0, maxzoom: Number(zooms), vector_layers: [] });
writeFileSync(file, out.commit());
