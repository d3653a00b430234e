import { defineConfig } from "vite";

// `tsc` checks the types; this only bundles. The sources of the packages are read, so that nothing of them that
// the console does not use is in it.
export default defineConfig({
  resolve: { conditions: ["source", "browser", "import", "module", "default"] },
  build: {
    outDir: "dist/site",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
    // A data: URL of a style or script would be refused by the page's own policy.
    assetsInlineLimit: 0,
    reportCompressedSize: false,
    chunkSizeWarningLimit: 400,
    // On a busy machine it would say of every build that it took long.
    rolldownOptions: { checks: { pluginTimings: false } },
  },
});
