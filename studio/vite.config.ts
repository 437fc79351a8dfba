// Builds the page into the package. File names are fixed: a rebuild of the same sources gives the same bytes.
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vitest/config";

export default defineConfig({
  plugins: [svelte()],
  build: {
    outDir: "../clearhead/serve/static",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    // Nothing inlined: the page's security policy allows files of our own server and nothing else.
    assetsInlineLimit: 0,
    rollupOptions: {
      output: {
        entryFileNames: "studio.js",
        chunkFileNames: "[name].js",
        assetFileNames: "[name][extname]",
      },
    },
  },
  test: { include: ["src/**/*.test.ts"], environment: "node" },
});
