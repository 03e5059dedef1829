import { defineConfig } from "vite";

export default defineConfig({
    base: "./",
    build: {
        outDir: "../build/console",
        emptyOutDir: true,
        target: "es2022",
        assetsInlineLimit: 0,
        modulePreload: { polyfill: false },
        chunkSizeWarningLimit: 1600, // maplibre-gl, loaded with the edge view only
    },
    // While working on the console: `ron up` serves the API, vite the pages.
    server: { proxy: { "/api": process.env.RON_CONSOLE ?? "http://127.0.0.1:7400" } },
});
