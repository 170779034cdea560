// Gen writes tables.go from opcodes.table, both in the folder above.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

func main() {
	_, file, _, _ := runtime.Caller(0)
	dir := filepath.Dir(filepath.Dir(file))
	if err := generate(dir); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func generate(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, "opcodes.table"))
	if err != nil {
		return fmt.Errorf("read the table: %w", err)
	}
	t, err := parse(string(text))
	if err != nil {
		return fmt.Errorf("opcodes.table: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "tables.go"), t.source(), 0o644); err != nil {
		return fmt.Errorf("write the tables: %w", err)
	}
	return nil
}
