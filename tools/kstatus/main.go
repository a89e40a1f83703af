// kstatus says of Kubernetes objects what GitOps tools make of their statuses: the rules of
// sigs.k8s.io/cli-utils, which Flux waits by, and the health that a Lua script of Argo CD returns,
// run by the Lua engine of Argo CD with the libraries that Argo CD gives to such scripts.
//
// It reads {"object": {…}, "script": "…", "openLibs": false} from standard input, one on a line, and
// writes {"status": "…", "message": "…", "health": {…}} for each; without a script there is no health.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

// Set when it is built.
var version = "unknown"

// Argo CD gives a script no more time.
const limit = time.Second

type question struct {
	Object   json.RawMessage `json:"object"`
	Script   string          `json:"script"`
	OpenLibs bool            `json:"openLibs"` // resource.customizations.useOpenLibs
}

type health struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

type answer struct {
	Status  string  `json:"status"`
	Message string  `json:"message"`
	Health  *health `json:"health,omitempty"`
}

func main() {
	if len(os.Args) > 1 {
		fmt.Println("kstatus", version)
		return
	}
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func serve(in io.Reader, out io.Writer) error {
	questions, answers := json.NewDecoder(bufio.NewReader(in)), json.NewEncoder(out)
	for {
		var asked question
		if err := questions.Decode(&asked); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		said, err := about(asked)
		if err != nil {
			return err
		}
		if err := answers.Encode(said); err != nil {
			return err
		}
	}
}

func about(asked question) (*answer, error) {
	object := map[string]any{}
	// As the API server's clients decode it: whole numbers are int64.
	if err := utiljson.Unmarshal(asked.Object, &object); err != nil {
		return nil, err
	}
	result, err := status.Compute(&unstructured.Unstructured{Object: object})
	if err != nil {
		return nil, err
	}
	said := &answer{Status: result.Status.String(), Message: result.Message}
	if asked.Script != "" {
		if said.Health, err = judge(asked, object); err != nil {
			return nil, err
		}
	}
	return said, nil
}

// judge asks no script about what is being deleted, as GetResourceHealth in Argo CD's
// gitops-engine/pkg/health.
func judge(asked question, object map[string]any) (*health, error) {
	found := unstructured.Unstructured{Object: object}
	if found.GetDeletionTimestamp() != nil {
		return &health{"Progressing", "Pending deletion"}, nil
	}
	return run(asked, object)
}

// run gives the script the libraries that Argo CD gives it, of which `os` has only times there and is
// left out here, unless an administrator opens all.
func run(asked question, object map[string]any) (*health, error) {
	state := lua.NewState(lua.Options{SkipOpenLibs: !asked.OpenLibs})
	defer state.Close()
	libraries := map[string]lua.LGFunction{
		lua.LoadLibName: lua.OpenPackage,
		lua.BaseLibName: lua.OpenBase,
		lua.TabLibName:  lua.OpenTable,
	}
	for _, name := range []string{lua.LoadLibName, lua.BaseLibName, lua.TabLibName} {
		call := lua.P{Fn: state.NewFunction(libraries[name]), Protect: true}
		if err := state.CallByParam(call, lua.LString(name)); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	state.SetContext(ctx)
	state.SetGlobal("obj", value(state, object))
	if err := state.DoString(asked.Script); err != nil {
		return nil, err
	}
	table, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		return nil, fmt.Errorf("the script returns %s, not a table", state.Get(-1).Type())
	}
	return &health{text(table, "status"), text(table, "message")}, nil
}

func text(table *lua.LTable, name string) string {
	if found, ok := table.RawGetString(name).(lua.LString); ok {
		return string(found)
	}
	return ""
}

func value(state *lua.LState, found any) lua.LValue {
	switch known := found.(type) {
	case bool:
		return lua.LBool(known)
	case string:
		return lua.LString(known)
	case int64:
		return lua.LNumber(known)
	case float64:
		return lua.LNumber(known)
	case []any:
		table := state.NewTable()
		for _, item := range known {
			table.Append(value(state, item))
		}
		return table
	case map[string]any:
		table := state.NewTable()
		for name, item := range known {
			table.RawSetString(name, value(state, item))
		}
		return table
	}
	return lua.LNil
}
