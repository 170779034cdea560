// Command gendocs writes the manual pages in man/ and the completion scripts
// in completions/ from the commands and the prose beside it. Run it from the
// top of the tree: go run ./internal/gendocs
package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"kprobe/cmd/kprobe/cli"
)

func main() {
	if err := write("."); err != nil {
		fmt.Fprintln(os.Stderr, "gendocs:", err)
		os.Exit(1)
	}
}

// write puts all files in the tree at root.
func write(root string) error {
	files, err := generate()
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, files[name], 0o644); err != nil {
			return err
		}
	}
	return nil
}

// generate gives the contents of every file by its path in the tree.
func generate() (map[string][]byte, error) {
	root := cli.New(&cli.Deps{Out: io.Discard, Err: io.Discard})
	files, err := manuals(root)
	if err != nil {
		return nil, err
	}
	for name, script := range map[string]func(io.Writer) error{
		"kprobe.bash": func(w io.Writer) error { return root.GenBashCompletionV2(w, true) },
		"_kprobe":     root.GenZshCompletion,
		"kprobe.fish": func(w io.Writer) error { return root.GenFishCompletion(w, true) },
	} {
		var b bytes.Buffer
		if err := script(&b); err != nil {
			return nil, fmt.Errorf("completions/%s: %w", name, err)
		}
		files["completions/"+name] = b.Bytes()
	}
	return files, nil
}
