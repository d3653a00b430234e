import { defineConfig } from "vite";

// `tsc` checks the types; Vite only bundles. It reads the package sources, so that unused code is left out.
export default defineConfig({
  resolve: { conditions: ["source", "browser", "import", "module", "default"] },
  build: {
    outDir: "dist/site",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
    // The content security policy of the page rejects data: URLs.
    assetsInlineLimit: 0,
    reportCompressedSize: false,
    chunkSizeWarningLimit: 400,
    // Avoids a warning on every slow machine.
    rolldownOptions: { checks: { pluginTimings: false } },
  },
});
