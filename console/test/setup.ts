// Browsers have WebCrypto as a global; older versions of node do not.
import { webcrypto } from "node:crypto";

if (!("crypto" in globalThis)) Object.defineProperty(globalThis, "crypto", { value: webcrypto });
